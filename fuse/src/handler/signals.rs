//! Whether the thread that waits for an answer has a signal to take. The kernel says so
//! (`FUSE_INTERRUPT`), but fuser does not hand that on, and a process that waits for an answer
//! could not even be killed. So requests that take long look for signals.

/// Whether a thread has a signal to take. False if that cannot be found out.
pub(super) fn are_pending(thread: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{thread}/status")).is_ok_and(|status| says_pending(&status))
}

fn says_pending(status: &str) -> bool {
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
    let signals = |name: &str| u64::from_str_radix(value(name), 16).unwrap_or(0);
    // A signal for the whole process goes to its first thread, if that takes it; it must not count
    // as an interruption of the others.
    let shared = if value("Pid:") == value("Tgid:") { signals("ShdPnd:") } else { 0 };
    (signals("SigPnd:") | shared) & !signals("SigBlk:") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(thread: u32, private: u64, shared: u64, blocked: u64) -> String {
        format!(
            "Name:\tx\nTgid:\t7\nPid:\t{thread}\n\
             SigPnd:\t{private:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n"
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
