//! The progress bar of long work: on a terminal only, and only when there is something to wait for.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use volume::Control;

const DRAW_INTERVAL: Duration = Duration::from_millis(100);
const WITH_TOTAL: &str = "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} left";
const WITHOUT_TOTAL: &str = "{msg} {bytes} {bytes_per_sec}";

/// Does the work while another thread shows how far it is.
pub fn shown<T>(what: &'static str, control: &Control, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    std::thread::scope(|scope| {
        let (done, wait) = channel::<()>();
        scope.spawn(move || {
            let mut bar: Option<ProgressBar> = None;
            while wait.recv_timeout(DRAW_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let bar = bar.get_or_insert_with(|| ProgressBar::new(0).with_message(what));
                let total = control.total_bytes();
                if bar.length() != Some(total) || bar.position() == 0 {
                    let template = if total > 0 { WITH_TOTAL } else { WITHOUT_TOTAL };
                    bar.set_style(ProgressStyle::with_template(template).expect("a template of this program"));
                    bar.set_length(total);
                }
                bar.set_position(control.done_bytes());
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        });
        let result = work();
        drop(done);
        result
    })
}
