//! Coding beside sending (paper 003, ECFS, sections III and VI.A, figure 7): a stripe is coded and
//! its blocks go through a socket each to a thread that takes them. Off: nothing is sent before all
//! parity is made, which the paper calls conventional. On: data blocks are sent while it is made.

use crate::arena::{Arena, Stripe};
use crate::contest::{Contest, begun, progress};
use crate::measure::interleaved;
use crate::own;
use crate::results::{Beside, Cell, Chart, Figure, Role, Row, Table, Value};
use ec::Code;
use ec::partition::Partition;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// What is written and read with one call.
const PIECE_BYTES: usize = 256 << 10;
/// What figure 7 shows for 32 nodes.
const PUBLISHED: &str = "+34.7 %";

pub fn table(contest: &mut Contest, shapes: &[(usize, usize)]) -> Table {
    let rows = shapes.iter().filter_map(|&(k, m)| row(contest, k, m).ok()).collect();
    Table {
        id: "overlap".into(),
        title: "Coding beside sending, rs".into(),
        how: "The same stripes: coded by one core, each block sent through a socket of its own to a thread that \
              takes it, MiB/s of user data. Off: first coded, then sent. On: data blocks are sent while parity is \
              made, and parity follows. The paper's gain is of 32 nodes with a network between them and disks; here \
              sending takes the processors that coding takes, too."
            .into(),
        first: "shape".into(),
        chart: Chart::Bars,
        rows,
    }
}

fn row(contest: &Contest, k: usize, m: usize) -> Result<Row, String> {
    begun(&format!("{k}+{m}"));
    let code = own::build(contest.kernel, "rs", k, m, 0)?;
    let block_bytes = super::regions::block_bytes(contest, k + m);
    let mut arena = Arena::of_blocks(k + m, block_bytes);
    let (reads, makes) = (Vec::from_iter(0..k), Vec::from_iter(k..k + m));
    let blocks = arena.stripes(k + m, block_bytes).into_iter().next().ok_or("no stripe")?;
    let mut stripe = Stripe::new(blocks, &reads, &makes);
    let user_mib = (k * block_bytes) as f64 / (1 << 20) as f64;
    let ways = [("off", false), ("on", true)];
    let figures = interleaved(contest.effort.rounds, ways.len(), |at| {
        progress(&format!("{k}+{m}: overlap {}", ways[at].0));
        Ok(user_mib / send(&*code, &mut stripe, ways[at].1).map_err(|why| format!("a socket: {why}"))?)
    });
    progress("");
    let cells = ways.iter().zip(figures).map(|((name, overlaps), outcome)| Cell {
        column: (*name).into(),
        role: if *overlaps { Role::Own } else { Role::Peer },
        code: "rs".into(),
        block_bytes,
        stripes: 1,
        iterations: 1,
        threads: 1,
        charted: true,
        outcome: outcome.into(),
    });
    let mut row = Row { label: format!("{k}+{m}"), k, m, lost: vec![], cells: cells.collect(), beside: vec![] };
    let gain = |(on, off): (&Figure, &Figure)| Value::Ratio(on.ratio(off));
    if let Some(value) = row.figure("on").zip(row.figure("off")).map(gain) {
        row.beside.push(Beside { name: "gain".into(), value });
    }
    row.beside.push(Beside { name: "paper".into(), value: Value::Text(PUBLISHED.into()) });
    Ok(row)
}

/// Codes a stripe and sends its blocks; returns the seconds until all of them have come.
fn send(code: &dyn Code, stripe: &mut Stripe, overlaps: bool) -> std::io::Result<f64> {
    let pairs: Vec<(UnixStream, UnixStream)> =
        (0..stripe.inputs.len() + stripe.outputs.len()).map(|_| UnixStream::pair()).collect::<Result<_, _>>()?;
    let (data, parity) = (&stripe.inputs, &mut stripe.outputs);
    let (to_data, to_parity) = pairs.split_at(data.len());
    let begun = Instant::now();
    std::thread::scope(move |scope| {
        let takers: Vec<_> = (to_data.iter().chain(to_parity))
            .zip(data.iter().map(|block| block.len()).chain(parity.iter().map(|block| block.len())))
            .map(|((_, from), length)| scope.spawn(move || take(from, length)))
            .collect();
        let encode = |parity: &mut [&mut [u8]]| Partition::default().run(code.encoder(), data, parity);
        if !overlaps {
            encode(parity);
        }
        let mut senders: Vec<_> =
            (to_data.iter().zip(data)).map(|((to, _), block)| scope.spawn(move || give(to, block))).collect();
        if overlaps {
            encode(parity);
        }
        let made: &[&mut [u8]] = parity;
        senders.extend(to_parity.iter().zip(made).map(|((to, _), block)| scope.spawn(move || give(to, block))));
        let mut ended = senders.into_iter().chain(takers);
        ended.try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
    .map(|()| begun.elapsed().as_secs_f64())
}

fn give(mut to: &UnixStream, block: &[u8]) -> std::io::Result<()> {
    block.chunks(PIECE_BYTES).try_for_each(|piece| to.write_all(piece))
}

fn take(mut from: &UnixStream, length: usize) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES.min(length)];
    let mut left = length;
    while left > 0 {
        let most = left.min(piece.len());
        match from.read(&mut piece[..most])? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            got => left -= got,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_make_and_send_the_same_parity() {
        let code = ec::parse("rs:3+2").unwrap();
        let length = 3 * PIECE_BYTES + 4096;
        let data: Vec<Vec<u8>> = (0..3).map(|block| vec![block + 1; length]).collect();
        let made = [false, true].map(|overlaps| {
            let mut parity = vec![vec![0; length]; 2];
            let inputs = data.iter().map(Vec::as_slice).collect();
            let outputs = parity.iter_mut().map(Vec::as_mut_slice).collect();
            assert!(send(&*code, &mut Stripe { inputs, outputs }, overlaps).unwrap() > 0.0);
            parity
        });
        assert_eq!(made[0], made[1]);
        assert!(made[0].iter().all(|block| block.iter().any(|&byte| byte != 0)));
    }
}
