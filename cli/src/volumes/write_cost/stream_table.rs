//! The threads' part of the result as tables for a terminal.

use crate::failure::Outcome;
use crate::show;
use bench::write_cost::published_loss;
use plan::cost::Measurement;
use plan::cost::streams::Stream;

/// Speed, loss, processors and overlap, a line for each code and number of threads.
pub fn print(result: &Measurement) -> Outcome {
    if result.streams.is_empty() {
        return Ok(());
    }
    show::text("\nthreads that write without waiting, records of 128 KiB, synced at the end")?;
    show::text("                                                     loss against none   processor cores busy")?;
    show::text("threads coding                  code     MB/s  spread    here   study   program client  meta stores")?;
    let mut last = None;
    for stream in &result.streams {
        let head = (&stream.net, stream.coding);
        if let Some(net) = stream.net.as_ref().filter(|_| last != Some(head)) {
            show::text(format_args!("network {net}"))?;
        }
        last = Some(head);
        show::text(speed(stream, &result.streams))?;
    }
    show::text("\nin each step at once, on average: the step's time in the time that passed; what overlaps adds up")?;
    show::text("threads coding                  code     CT     MT     DT     MP     PC     DD     SP     sum")?;
    result.streams.iter().try_for_each(|stream| show::text(overlap(stream)))
}

fn begin(stream: &Stream) -> String {
    format!("{:>7} {:<6} {:>21}", stream.threads, stream.coding.to_string(), stream.name())
}

fn speed(stream: &Stream, all: &[Stream]) -> String {
    let percent = |loss: f64| format!("{:.1} %", 100.0 * loss);
    let own = stream.baseline(all).map_or_else(|| "-".into(), |none| percent(stream.loss(none)));
    let study = published_loss(stream).map_or_else(|| "-".into(), |loss| format!("{loss} %"));
    let cores = stream.cores().map(|cores| format!("{cores:>6.2}")).join(" ");
    format!(
        "{} {:>8.1} {:>5.1} % {own:>7} {study:>7}   {cores}",
        begin(stream),
        stream.speed() / 1e6,
        100.0 * stream.spread()
    )
}

fn overlap(stream: &Stream) -> String {
    let at_once = stream.at_once();
    let each = at_once.as_array().map(|mean| format!("{mean:>6.2}")).join(" ");
    format!("{} {each} {:>7.2}", begin(stream), at_once.total())
}
