//! Ctrl-C: the first asks the work to stop and clean up, the second ends the process.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use volume::Control;

/// The exit status of an interrupted command.
pub const INTERRUPTED: u8 = 130;

/// Whether a signal ends the process, because there is nothing to clean up.
static EXITS_AT_ONCE: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The control of the command that this thread carries out for another process.
    static GIVEN: RefCell<Option<Arc<Control>>> = const { RefCell::new(None) };
}

/// The control of this process's work, which signals to interrupt, terminate or hang up cancel.
/// When there is nothing to clean up (`at_once`), they end the process.
pub fn control(at_once: bool) -> Arc<Control> {
    static CONTROL: OnceLock<Arc<Control>> = OnceLock::new();
    static SIGNALS: AtomicU32 = AtomicU32::new(0);
    if let Some(given) = GIVEN.with_borrow(Clone::clone) {
        return given;
    }
    EXITS_AT_ONCE.fetch_or(at_once, Ordering::Relaxed);
    let control = CONTROL.get_or_init(|| {
        let control = Arc::new(Control::default());
        let cancelled = Arc::clone(&control);
        // Without a handler the work still ends, only less tidily.
        let _ = ctrlc::set_handler(move || {
            cancelled.cancel();
            if EXITS_AT_ONCE.load(Ordering::Relaxed) || SIGNALS.fetch_add(1, Ordering::Relaxed) > 0 {
                std::process::exit(INTERRUPTED.into());
            }
        });
        control
    });
    Arc::clone(control)
}

/// Does something whose control is that one.
pub fn under<T>(control: Arc<Control>, work: impl FnOnce() -> T) -> T {
    GIVEN.set(Some(control));
    let result = work();
    GIVEN.take();
    result
}
