//! What the kernel says of processes: their processor time and memory, over a process and its children, and which cores they run on.
//!
//! Linux only: elsewhere the figures are absent, and the benchmark says so.

use std::{collections::BTreeMap, io, time::Duration};

/// The fields of `/proc/PID/stat` that are looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stat {
    pub parent: u32,
    /// In ticks of the clock, `_SC_CLK_TCK` a second.
    pub user: u64,
    pub system: u64,
}

impl Stat {
    /// The name in brackets may hold anything, brackets and spaces too: what follows the last one counts.
    pub fn parse(text: &str) -> Option<Stat> {
        let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        // Fields 14 and 15, counted from 1 with the id; the parent is the fourth.
        let user = fields.nth(9)?.parse().ok()?;
        Some(Stat { parent, user, system: fields.next()?.parse().ok()? })
    }

    fn read(pid: u32) -> Option<Stat> {
        Stat::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }
}

/// The value of a `Name:   123 kB` line in bytes, as in `status` and `smaps_rollup`.
pub fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// `root` and all its descendants that live.
pub fn tree(root: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    descendants(root, &pids.filter_map(|pid| Some((pid, Stat::read(pid)?.parent))).collect())
}

fn descendants(root: u32, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(parents.iter().filter(|(pid, of)| **of == parent && **pid != root).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

/// Processor time of these processes. The kernel keeps it in nanoseconds, of which `/proc/PID/stat` shows hundredths of a second, so
/// that the clock of the process is asked first.
pub fn cpu(pids: &[u32]) -> Duration {
    pids.iter().filter_map(|&pid| process_clock(pid).or_else(|| ticks(pid))).sum()
}

fn ticks(pid: u32) -> Option<Duration> {
    let stat = Stat::read(pid)?;
    // SAFETY: asks for a number and touches no memory.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|n| *n > 0)?;
    Some(Duration::from_nanos((stat.user + stat.system) * (1_000_000_000 / per_second)))
}

fn process_clock(pid: u32) -> Option<Duration> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: writes one clock id, to which the pointer leads.
    if unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) } != 0 {
        return None;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec, to which the pointer leads.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// Processes that wanted to run, on average over the last minute.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// How much of the processor time was spent in the kernel, 0 to 1.
pub fn system_share(pids: &[u32]) -> f64 {
    let (mut user, mut system) = (0, 0);
    for stat in pids.iter().filter_map(|&pid| Stat::read(pid)) {
        user += stat.user;
        system += stat.system;
    }
    system as f64 / (user + system).max(1) as f64
}

/// Memory of these processes, as proportional set size, or as resident set where that is not told.
pub fn memory(pids: &[u32]) -> u64 {
    let read = |pid, file| std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    let of = |&pid: &u32| {
        let pss = read(pid, "smaps_rollup").and_then(|text| kilobytes(&text, "Pss"));
        pss.or_else(|| kilobytes(&read(pid, "status")?, "VmRSS"))
    };
    pids.iter().filter_map(of).sum()
}

/// The most that these processes have been resident with since [`forget_peak`].
pub fn peak(pids: &[u32]) -> u64 {
    let of = |&pid: &u32| kilobytes(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmHWM");
    pids.iter().filter_map(of).sum()
}

/// Begins the peak anew (proc(5), `clear_refs`). False where the kernel does not let.
pub fn forget_peak(pids: &[u32]) -> bool {
    pids.iter().all(|pid| std::fs::write(format!("/proc/{pid}/clear_refs"), "5").is_ok())
}

/// The cores that this thread may run on.
pub fn cores() -> Vec<usize> {
    let mut set = empty_set();
    // SAFETY: writes at most one set, whose size is given.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: reads a bit of a set that lives, below its size.
    (0..libc::CPU_SETSIZE.cast_unsigned() as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// From now on this thread, and what it starts, runs on these cores only.
pub fn pin(cores: &[usize]) -> io::Result<()> {
    let mut set = empty_set();
    for &core in cores {
        // SAFETY: sets a bit of a set that lives; `cores` come from the kernel, so that they are below its size.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: reads one set, whose size is given.
    let done = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn empty_set() -> libc::cpu_set_t {
    // SAFETY: a set is an array of integers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// The number of files that a process may have open, raised as far as it may.
pub fn open_files() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one limit, to which the pointer leads.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 1024;
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
    // SAFETY: reads one limit, to which the pointer leads.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) };
    usize::try_from(if done == 0 { raised.rlim_cur } else { limit.rlim_cur }).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "4242 (a) (strange name) S 17 4242 4242 0 -1 4194560 2000 0 1 0 321 45 7 8 20 0 5 0 99 1000 200 18446744073709551615";

    #[test]
    fn the_name_of_a_process_may_hold_brackets_and_spaces() {
        assert_eq!(Stat::parse(STAT), Some(Stat { parent: 17, user: 321, system: 45 }));
        assert_eq!(Stat::parse("1 (cut) S 17"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn sizes_are_read_by_their_whole_name() {
        let text = "Name:\tlockgate\nPss_Anon:          7 kB\nPss:              1234 kB\nVmHWM:\t  8 kB\n";
        assert_eq!(kilobytes(text, "Pss"), Some(1234 * 1024));
        assert_eq!(kilobytes(text, "VmHWM"), Some(8192));
        assert_eq!(kilobytes(text, "VmRSS"), None);
        assert_eq!(kilobytes(text, "Name"), None);
    }

    #[test]
    fn a_tree_has_the_grandchildren_and_nobody_else() {
        let parents = BTreeMap::from([(1, 0), (10, 1), (11, 10), (12, 11), (13, 1), (14, 13)]);
        assert_eq!(descendants(10, &parents), [10, 11, 12]);
        assert_eq!(descendants(99, &parents), [99]);
    }

    #[test]
    fn the_kernel_tells_about_this_process() {
        let own = [std::process::id()];
        let before = cpu(&own);
        let mut sum = 0u64;
        while cpu(&own) < before + Duration::from_millis(20) {
            sum = sum.wrapping_add(std::hint::black_box(1));
        }
        assert!(memory(&own) > 100 << 10);
        assert!(tree(own[0]).contains(&own[0]));
        assert!(!cores().is_empty());
        assert!(open_files() > 0);
    }
}
