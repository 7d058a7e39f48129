#!/usr/bin/env bash
# Records what a service exports, scrape after scrape, for replay in a Prometheus.
#
#   scripts/record_metrics.sh URL FILE SECONDS        # e.g. http://127.0.0.1:8080/metrics dashboards/testdata/gpu.prom 120
#
# FILE becomes OpenMetrics text: each sample with the time of its scrape in seconds, `# EOF` at the end, read by
# `promtool tsdb create-blocks-from openmetrics FILE DIR`. Only chimere_ metrics are kept, and no help texts. PERIOD: seconds between
# scrapes [5]. A scrape that fails ends the recording with an error. Needs curl and awk.
set -euo pipefail
url=$1 file=$2 seconds=$3
period=${PERIOD:-5}
end=$(($(date +%s) + seconds))

: >"$file"
while (($(date +%s) < end)); do
    at=$(date +%s.%3N)
    curl --fail --silent --show-error --max-time 10 "$url" | awk -v at="$at" '/^chimere_/ { print $0, at }' >>"$file"
    sleep "$period"
done
echo '# EOF' >>"$file"
