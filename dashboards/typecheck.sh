#!/usr/bin/env bash
# Holds the dashboards to the types that Grafana itself publishes: each JSON file must be a `Dashboard` of the npm package @grafana/schema.
#
#   dashboards/typecheck.sh [VERSION...]        # of Grafana [11.0.0 12.0.0]
#
# Needs npm; fetches that package and TypeScript into a temporary folder. Without npm it says so and passes.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v npm >/dev/null; then
    echo 'skipped: no npm'
    exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
here=$PWD

(($#)) || set -- 11.0.0 12.0.0
for version in "$@"; do
    mkdir "$folder/$version"
    cd "$folder/$version"
    echo '{"private": true}' >package.json
    npm install --silent --ignore-scripts --no-audit --no-fund "@grafana/schema@$version" typescript@5
    for name in service gpu loadtest; do
        {
            echo 'import type { Dashboard } from "@grafana/schema/dist/esm/raw/dashboard/x/dashboard_types.gen";'
            printf 'export const dashboard: Dashboard = %s;\n' "$(<"$here/$name.json")"
        } >"$name.ts"
    done
    npx --no-install tsc --noEmit --strict --skipLibCheck --moduleResolution node ./*.ts
    echo "Grafana $version: the dashboards are of its type"
done
