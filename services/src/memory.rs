//! The memory plan: one budget of bytes, split before anything is allocated, and shown. A pure function; who asks the
//! system how much is free is [`free_bytes`].

use crate::config::Budget;
use crate::{limits, metrics};
use chimere_engine::PAGE_TOKENS;
use chimere_engine::backend::cpu::Reservation;
use chimere_engine::scheduler::{HostBlocks, PrefixConfig};
use std::collections::BTreeMap;
use std::fmt;

/// Never planned with when the budget is taken from what is free: other programs, threads' stacks, requests and their
/// texts.
const MARGIN_BYTES: u64 = 256 << 20;

/// States that the prefix cache keeps for each sequence that can run, where there is room beside keys and values:
/// people read and think longer than answers take, so there are more conversations than sequences.
const CHECKPOINTS_A_SEQ: u64 = 4;

/// What the tables of experts take that do not all lie on the device, and what rounding their places up does: some
/// hundred bytes an expert.
const EXPERT_TABLES_BYTES: u64 = 8 << 20;

/// What a plan is made from, in bytes where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// All weights as the backend keeps them.
    pub weights: u64,
    /// Buffers of a step.
    pub workspace: u64,
    /// What the device's driver takes for itself on our behalf; 0 on a CPU.
    pub reserve: u64,
    /// One sequence's recurrent state.
    pub slot: u64,
    /// One page of keys and values.
    pub page: u64,
    /// One recurrent state that the prefix cache keeps; `None` without the cache.
    pub checkpoint: Option<u64>,
    /// Memory of the host that a GPU reads, beside the budget.
    pub host: u64,
    /// Routed experts in the device's memory, and all, where the others lie in the host's.
    pub experts: Option<(u64, u64)>,
    /// Sequences that run at once.
    pub seqs: u32,
    /// Tokens a sequence may have.
    pub context: u32,
}

/// Where the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// What there was to split.
    pub budget: u64,
    /// What it was split for.
    pub needs: Needs,
    /// Pages of keys and values: as many as fit, at most what all sequences can use.
    pub pages: u32,
    /// States that the prefix cache can keep on the device: a quarter of what keys and values would take, or out of
    /// what these cannot use anyway some for each sequence, whichever is more.
    pub checkpoints: u32,
    /// Bytes of the host's memory for what the prefix cache keeps beyond them.
    pub host_cache: u64,
}

/// The budget is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSmall {
    budget: u64,
    needs: Needs,
}

impl std::error::Error for TooSmall {}

impl fmt::Display for TooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = &self.needs;
        write!(f, "the memory budget of {} does not hold ", Bytes(self.budget))?;
        write!(f, "weights {}, workspace {}, ", Bytes(n.weights), Bytes(n.workspace))?;
        if n.reserve > 0 {
            write!(f, "the driver's own {}, ", Bytes(n.reserve))?;
        }
        write!(f, "{} states {}, and keys and values {} ", n.seqs, Bytes(n.states()), Bytes(n.least_kv()))?;
        write!(f, "for one sequence of {} tokens: together {}", n.context, Bytes(n.least()))?;
        f.write_str("; raise --vram-budget, or lower --max-seqs or --max-context")?;
        // A CPU has none of these ways out.
        f.write_str(if n.reserve > 0 { ", or take --kv-type q8_0:q4_0, --embedding host or --device cpu" } else { "" })
    }
}

impl Needs {
    fn states(&self) -> u64 {
        self.slot.saturating_mul(self.seqs.into())
    }

    fn pages_of_one(&self) -> u32 {
        self.context.div_ceil(PAGE_TOKENS).max(1)
    }

    fn least_kv(&self) -> u64 {
        self.page.saturating_mul(self.pages_of_one().into())
    }

    fn fixed(&self) -> u64 {
        self.weights.saturating_add(self.workspace).saturating_add(self.reserve).saturating_add(self.states())
    }

    /// What is left of `budget` for routed experts, whose `experts` bytes are among the weights: beside everything else
    /// and keys and values for all sequences, of these an eighth of the budget at most; `None` if all fit, or nothing
    /// else does.
    pub(crate) fn experts_beside(&self, budget: u64, experts: u64) -> Option<u64> {
        if self.least() <= budget {
            return None;
        }
        let rest = budget.checked_sub(self.fixed() - experts)?;
        let all = self.page.saturating_mul(self.pages_of_one().into()).saturating_mul(self.seqs.into());
        let kv = all.min((budget / 8).max(self.least_kv()));
        Some(rest.saturating_sub(kv.min(rest)).saturating_sub(EXPERT_TABLES_BYTES))
    }

    /// With pages for one sequence of full length: less could not answer every request that the context allows.
    fn least(&self) -> u64 {
        self.fixed().saturating_add(self.least_kv())
    }
}

impl MemoryPlan {
    /// Splits `budget` into its uses, or says what it does not hold.
    pub fn new(budget: u64, needs: Needs) -> Result<Self, TooSmall> {
        if needs.least() > budget {
            return Err(TooSmall { budget, needs });
        }
        let most = u64::from(needs.pages_of_one()) * u64::from(needs.seqs);
        let left = budget - needs.fixed();
        let checkpoints = needs.checkpoint.map_or(0, |each| checkpoints(&needs, each.max(1), left, most));
        let left = left - needs.checkpoint.unwrap_or(0) * u64::from(checkpoints);
        let fit = left.checked_div(needs.page).unwrap_or(most);
        // The page ids are 32 bits wide.
        let pages = u32::try_from(fit.min(most)).unwrap_or(u32::MAX);
        Ok(Self { budget, needs, pages, checkpoints, host_cache: 0 })
    }

    /// Gives the prefix cache a second tier in the host's memory, of which `free` bytes are free. One that was asked
    /// for and cannot be had is an error; without a first tier there is none.
    pub fn with_host_cache(self, budget: Budget, free: Option<u64>) -> Result<Self, String> {
        let blocks = self.host_blocks();
        let least = u64::from(blocks.checkpoint + blocks.unit) * blocks.bytes;
        let host_cache = match (budget, free) {
            _ if self.checkpoints == 0 => 0,
            (Budget::Auto, free) => {
                let quarter = (free.unwrap_or(0) / 4).min(limits::HOST_CACHE_BYTES);
                if quarter < least { 0 } else { quarter }
            }
            (Budget::Bytes(0), _) => 0,
            (Budget::Bytes(n), _) if n < least => {
                return Err(format!(
                    "host-cache-budget {}: the state and the keys and values of one prompt take at least {}; 0 is for none",
                    Bytes(n),
                    Bytes(least)
                ));
            }
            (Budget::Bytes(n), Some(free)) if n > free => {
                let (n, free) = (Bytes(n), Bytes(free));
                return Err(format!("host-cache-budget {n}: of the host's memory {free} are free"));
            }
            (Budget::Bytes(n), _) => n,
        };
        Ok(Self { host_cache, ..self })
    }

    fn host_blocks(&self) -> HostBlocks {
        HostBlocks::of(self.needs.checkpoint.unwrap_or(0), self.needs.page)
    }

    /// What the prefix cache may keep.
    pub fn prefix(&self) -> PrefixConfig {
        let (checkpoint_bytes, page_bytes) = (self.needs.checkpoint.unwrap_or(0), self.needs.page);
        let host = if self.host_cache > 0 { self.host_blocks() } else { HostBlocks::NONE };
        PrefixConfig { checkpoints: self.checkpoints, checkpoint_bytes, page_bytes, host }
    }

    /// Why the prefix cache, if it is wanted, has no place for a single state.
    pub fn no_checkpoint(&self) -> Option<String> {
        let each = self.needs.checkpoint.filter(|_| self.checkpoints == 0)?;
        Some(format!(
            "a state of {} does not fit into a quarter of the {} for keys and values, nor beside them; raise \
             --vram-budget, or lower --step-tokens",
            Bytes(each),
            Bytes(self.needs.page * u64::from(self.pages))
        ))
    }

    /// Uses with their bytes, by the names that the metric has. What is 0 by its nature is left out.
    pub fn uses(&self) -> Vec<(&'static str, u64)> {
        let kv = self.needs.page * u64::from(self.pages);
        let checkpoints = self.needs.checkpoint.unwrap_or(0) * u64::from(self.checkpoints);
        let all = [
            ("weights", self.needs.weights),
            ("workspace", self.needs.workspace),
            ("reserve", self.needs.reserve),
            ("states", self.needs.states()),
            ("checkpoints", checkpoints),
            ("kv", kv),
        ];
        all.into_iter().filter(|(name, bytes)| !["reserve", "checkpoints"].contains(name) || *bytes > 0).collect()
    }

    /// Bytes of all uses on the device.
    pub fn bytes(&self) -> u64 {
        self.uses().iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Keeps the addresses that a plan for a CPU will take, and some for the threads that start meanwhile, until the
    /// backend allocates them. A plan that does not get them is refused.
    pub fn reserve(&self) -> Result<Reservation, String> {
        let bytes = self.bytes().saturating_add(limits::THREADS_BYTES);
        Reservation::of(bytes).ok_or_else(|| not_given(bytes))
    }

    /// Sets the gauges that show the plans of all replicas together.
    pub fn export<'a>(plans: impl Iterator<Item = &'a Self>) {
        let mut sums = BTreeMap::<&str, u64>::new();
        for plan in plans {
            let host = [("host", plan.needs.host), ("host_cache", plan.host_cache)];
            for (name, bytes) in plan.uses().into_iter().chain(host.into_iter().filter(|(_, bytes)| *bytes > 0)) {
                *sums.entry(name).or_default() += bytes;
            }
        }
        for (name, bytes) in sums {
            ::metrics::gauge!(metrics::MEMORY_BYTES, "use" => name).set(bytes as f64);
        }
    }

    fn note(&self, name: &str) -> String {
        match name {
            "weights" => self.needs.experts.map_or_else(String::new, |(there, all)| {
                let share = 100.0 * there as f64 / all.max(1) as f64;
                format!(
                    "{there} of {all} experts ({share:.0} %, and as much of evenly spread choices); the others: host"
                )
            }),
            "reserve" => "the driver's context, machine code, graphs".into(),
            "states" => format!("{} sequences x {}", self.needs.seqs, Bytes(self.needs.slot)),
            "checkpoints" => format!(
                "{} states of the prefix cache x {}",
                self.checkpoints,
                Bytes(self.needs.checkpoint.unwrap_or(0))
            ),
            "kv" => format!(
                "{} pages of {PAGE_TOKENS} tokens x {}, {} tokens in all",
                self.pages,
                Bytes(self.needs.page),
                u64::from(self.pages) * u64::from(PAGE_TOKENS)
            ),
            _ => String::new(),
        }
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "memory plan")?;
        for (name, bytes) in self.uses() {
            let line = format!("  {name:<11}{:>12}  {}", Bytes(bytes).to_string(), self.note(name));
            writeln!(f, "{}", line.trim_end())?;
        }
        write!(f, "  {:<11}{:>12}  of {}", "total", Bytes(self.bytes()).to_string(), Bytes(self.budget))?;
        if self.needs.host > 0 {
            write!(
                f,
                "\n  {:<11}{:>12}  pinned memory of the host, beside the budget",
                "host",
                Bytes(self.needs.host).to_string()
            )?;
        }
        if self.host_cache > 0 {
            let bytes = Bytes(self.host_cache).to_string();
            write!(
                f,
                "\n  {:<11}{bytes:>12}  memory of the host for the prefix cache, beside the budget",
                "host cache"
            )?;
        }
        Ok(())
    }
}

/// Why there is no service where the system does not give this much, although it is free.
pub(crate) fn not_given(bytes: u64) -> String {
    format!(
        "the system does not give this process the {} ({bytes} bytes) that the plan and its threads take, although \
         that much may be free: lower --max-seqs or --max-context, or raise the limit (`ulimit -v`)",
        Bytes(bytes)
    )
}

/// How many states fit into the bytes that are left for them and for at most `most` pages. Without a page less than one
/// sequence of full length needs.
fn checkpoints(needs: &Needs, each: u64, left: u64, most: u64) -> u32 {
    let kv = needs.page.saturating_mul(most);
    let quarter = left.min(kv) / 4;
    let wanted = (quarter / each).max(CHECKPOINTS_A_SEQ.saturating_mul(needs.seqs.into()));
    // What keys and values could not use anyway, or a quarter of what they would have.
    let room = quarter.max(left.saturating_sub(kv)).min(left - needs.least_kv());
    u32::try_from(wanted.min(room / each).min(limits::CHECKPOINTS_MAX.into())).unwrap_or(u32::MAX)
}

/// Bytes as people read them.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match UNITS.into_iter().find(|(_, size)| self.0 >= *size) {
            Some((unit, size)) => write!(f, "{:.1} {unit}", self.0 as f64 / size as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

/// Keeps the C library from taking 64 MiB of addresses for the allocations of each thread, where a limit (`ulimit -v`)
/// leaves few: the rest of the process would find none. Called before there are threads.
pub fn spare_addresses() {
    if rustix::process::getrlimit(rustix::process::Resource::As).current.is_none() {
        return;
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `mallopt` takes any value, and sets a number that later allocations read.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// What this process may still take: the system's available memory or its control group's, whichever is less, less a
/// margin.
pub fn free_bytes() -> Option<u64> {
    let mut system = sysinfo::System::new().ok()?;
    system.refresh_memory();
    let group = system.cgroup_limits().map_or(u64::MAX, |g| g.free_memory);
    let free = system.available_memory().min(group);
    Some(free.saturating_sub(MARGIN_BYTES.max(free / 10)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs {
        weights: 1_000,
        workspace: 100,
        reserve: 0,
        slot: 10,
        page: 50,
        checkpoint: None,
        host: 0,
        experts: None,
        seqs: 4,
        context: 100,
    };

    #[test]
    fn what_the_fixed_parts_leave_becomes_pages() {
        let plan = MemoryPlan::new(1_000 + 100 + 40 + 7 * 50 + 49, NEEDS).unwrap();
        assert_eq!(plan.pages, 7);
        assert_eq!(plan.uses(), [("weights", 1_000), ("workspace", 100), ("states", 40), ("kv", 350)]);
    }

    #[test]
    fn no_more_pages_than_all_sequences_can_use() {
        assert_eq!(MemoryPlan::new(1 << 40, NEEDS).unwrap().pages, 4 * 4);
    }

    #[test]
    fn a_budget_that_cannot_hold_one_whole_sequence_is_refused_with_the_numbers() {
        assert!(MemoryPlan::new(1_340, NEEDS).is_ok());
        let err = MemoryPlan::new(1_339, NEEDS).unwrap_err().to_string();
        for part in
            ["1.3 KiB", "1000 B", "100 B", "4 states 40 B", "200 B for one sequence of 100 tokens", "--vram-budget"]
        {
            assert!(err.contains(part), "{part:?} in {err}");
        }
    }

    #[test]
    fn the_prefix_cache_has_what_is_left_over_or_a_quarter_of_the_pages_and_never_the_last_ones() {
        let split = |checkpoint: u64, left: u64| {
            let needs = Needs { checkpoint: Some(checkpoint), ..NEEDS };
            let plan = MemoryPlan::new(1_140 + left, needs).unwrap();
            (plan.checkpoints, plan.pages)
        };
        // All sequences together can use 16 pages, 800 bytes.
        assert_eq!(split(10, 1 << 30), (20, 16), "a quarter's worth of what keys and values take");
        assert_eq!(split(100, 1 << 30), (16, 16), "or four for each sequence");
        assert_eq!(split(100, 800 + 250), (2, 16), "if that fits beside them");
        assert_eq!(split(100, 600), (1, 10), "else of what they could use a quarter");
        assert_eq!(split(10, 240), (4, 4), "one sequence of full length fits whatever is kept");
        assert_eq!(split(100, 240), (0, 4));
        assert_eq!(MemoryPlan::new(2_000, NEEDS).unwrap().no_checkpoint(), None, "nobody asked for one");
        let none = MemoryPlan::new(1_380, Needs { checkpoint: Some(100), ..NEEDS }).unwrap();
        assert!(none.no_checkpoint().unwrap().starts_with("a state of 100 B does not fit into a quarter of the 200 B"));
        assert!(!none.to_string().contains("checkpoints"));
        let some = MemoryPlan::new(1 << 20, Needs { checkpoint: Some(100), ..NEEDS }).unwrap().to_string();
        assert!(some.contains("  checkpoints     1.6 KiB  16 states of the prefix cache x 100 B\n"), "{some}");
    }

    #[test]
    fn numbers_from_a_damaged_file_do_not_overflow() {
        let huge = Needs {
            weights: u64::MAX,
            workspace: u64::MAX,
            reserve: u64::MAX,
            slot: u64::MAX,
            page: u64::MAX,
            checkpoint: Some(u64::MAX),
            host: u64::MAX,
            experts: None,
            seqs: u32::MAX,
            context: u32::MAX,
        };
        assert!(MemoryPlan::new(u64::MAX - 1, huge).is_err());
    }

    #[test]
    fn the_table_shows_each_use_and_the_sum() {
        let plan = MemoryPlan::new(
            12 << 30,
            Needs {
                weights: 22 << 20,
                workspace: 8 << 20,
                slot: 1 << 20,
                page: 1 << 17,
                seqs: 16,
                context: 4096,
                ..NEEDS
            },
        );
        let want = "memory plan\n  weights        22.0 MiB\n  workspace       8.0 MiB\n  states         16.0 MiB  16 sequences x 1.0 MiB\n  \
                    kv            256.0 MiB  2048 pages of 32 tokens x 128.0 KiB, 65536 tokens in all\n  total         302.0 MiB  of 12.0 GiB";
        assert_eq!(plan.unwrap().to_string(), want);
    }

    #[test]
    fn a_refusal_names_the_bytes_and_what_to_lower() {
        let said = not_given(3 << 30);
        for part in ["3.0 GiB", "3221225472 bytes", "--max-seqs", "--max-context", "ulimit -v"] {
            assert!(said.contains(part), "{part:?} in {said}");
        }
    }

    #[test]
    fn on_a_gpu_the_driver_s_own_memory_is_a_use_and_the_host_s_is_not() {
        let needs = Needs { reserve: 640 << 20, host: 273 << 20, ..NEEDS };
        let plan = MemoryPlan::new(1 << 30, needs).unwrap();
        assert_eq!(plan.uses()[2], ("reserve", 640 << 20));
        let table = plan.to_string();
        for part in
            ["  reserve       640.0 MiB  the driver's context", "of 1.0 GiB\n  host          273.0 MiB  pinned memory"]
        {
            assert!(table.contains(part), "{part:?} in {table}");
        }
        let error = MemoryPlan::new(640 << 20, needs).unwrap_err().to_string();
        for part in ["the driver's own 640.0 MiB", "--embedding host"] {
            assert!(error.contains(part), "{part:?} in {error}");
        }
    }

    #[test]
    fn the_host_keeps_what_is_asked_for_or_a_quarter_of_what_is_free() {
        let needs = Needs { page: 1 << 20, checkpoint: Some(64 << 20), ..NEEDS };
        let plan = MemoryPlan::new(1 << 30, needs).unwrap();
        let host = |budget, free| plan.with_host_cache(budget, free).map(|plan| plan.host_cache);
        assert_eq!(host(Budget::Auto, Some(40 << 30)), Ok(10 << 30));
        assert_eq!(host(Budget::Auto, Some(1 << 40)), Ok(16 << 30));
        assert_eq!(host(Budget::Auto, Some(100 << 20)), Ok(0), "a quarter of it holds no entry");
        assert_eq!(host(Budget::Auto, None), Ok(0));
        assert_eq!(host(Budget::Bytes(0), Some(1 << 40)), Ok(0));
        assert_eq!(host(Budget::Bytes(8 << 30), Some(9 << 30)), Ok(8 << 30));
        let refused = host(Budget::Bytes(8 << 30), Some(7 << 30)).unwrap_err();
        assert_eq!(refused, "host-cache-budget 8.0 GiB: of the host's memory 7.0 GiB are free");
        let refused = host(Budget::Bytes(1 << 20), None).unwrap_err();
        assert!(
            refused.contains("1.0 MiB: the state and the keys and values of one prompt take at least 66.0 MiB"),
            "{refused}"
        );
        let with = plan.with_host_cache(Budget::Bytes(8 << 30), None).unwrap();
        assert_eq!(with.prefix().host, HostBlocks { bytes: 2 << 20, checkpoint: 32, unit: 1 });
        assert!(
            with.to_string()
                .ends_with("\n  host cache      8.0 GiB  memory of the host for the prefix cache, beside the budget")
        );
        let none = MemoryPlan::new(1_380, NEEDS).unwrap().with_host_cache(Budget::Bytes(8 << 30), None).unwrap();
        assert_eq!((none.host_cache, none.prefix()), (0, PrefixConfig { page_bytes: 50, ..PrefixConfig::OFF }));
    }

    #[test]
    fn this_machine_has_some_memory_left() {
        assert!(free_bytes().unwrap() > 1 << 20);
    }
}
