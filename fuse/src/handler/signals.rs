//! Whether whoever waits for an answer was sent a signal. The kernel says so (`FUSE_INTERRUPT`), but fuser does not hand it on, and a process that waits for an
//! answer can then not even be killed: so it is looked up by those who take long.

/// Whether a thread has a signal to take. False where that cannot be told.
pub(super) fn are_pending(thread: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{thread}/status")).is_ok_and(|status| says_pending(&status))
}

fn says_pending(status: &str) -> bool {
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
    let signals = |name: &str| u64::from_str_radix(value(name), 16).unwrap_or(0);
    // What is for any thread of a process goes to the first one, if that takes it; others must not be said to be interrupted by it.
    let shared = if value("Pid:") == value("Tgid:") { signals("ShdPnd:") } else { 0 };
    (signals("SigPnd:") | shared) & !signals("SigBlk:") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(thread: u32, private: u64, shared: u64, blocked: u64) -> String {
        format!(
            "Name:\tx\nTgid:\t7\nPid:\t{thread}\nSigPnd:\t{private:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n"
        )
    }

    #[test]
    fn a_signal_counts_that_the_thread_will_take() {
        assert!(!says_pending(&status(7, 0, 0, 0)));
        assert!(says_pending(&status(7, 0x100, 0, 0)) && says_pending(&status(8, 0x100, 0, 0)));
        assert!(says_pending(&status(7, 0, 2, 0)) && !says_pending(&status(8, 0, 2, 0)));
        assert!(!says_pending(&status(7, 0x100, 2, 0x102)));
        assert!(!says_pending("") && !says_pending("SigPnd:\tgarbage"));
        assert!(!are_pending(u32::MAX));
    }
}
