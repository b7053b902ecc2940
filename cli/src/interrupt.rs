//! Ctrl-C: the first asks the work to stop and clean up, the second ends the process.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use volume::Control;

/// The exit status of an interrupted command.
const INTERRUPTED: i32 = 130;

/// The control of this process's work, which signals to interrupt, terminate or hang up cancel. When there is
/// nothing to clean up (`at_once`), they end the process.
pub fn control(at_once: bool) -> Arc<Control> {
    static CONTROL: OnceLock<Arc<Control>> = OnceLock::new();
    static SIGNALS: AtomicU32 = AtomicU32::new(0);
    let control = CONTROL.get_or_init(|| {
        let control = Arc::new(Control::default());
        let cancelled = Arc::clone(&control);
        // Without a handler the work still ends, only less tidily.
        let _ = ctrlc::set_handler(move || {
            cancelled.cancel();
            if at_once || SIGNALS.fetch_add(1, Ordering::Relaxed) > 0 {
                std::process::exit(INTERRUPTED);
            }
        });
        control
    });
    Arc::clone(control)
}
