//! A campaign that goes on: the world, the process of the writers, and what happened.

use super::world::World;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What happened, and when.
pub struct Record {
    begun: Instant,
    pub lines: Vec<String>,
}

impl Record {
    /// One that begins now.
    pub fn new() -> Self {
        Self { begun: Instant::now(), lines: Vec::new() }
    }

    pub fn add(&mut self, what: String) {
        self.lines.push(format!("{:9.3} {what}", self.begun.elapsed().as_secs_f64()));
    }
}

/// The process of the writers.
pub struct Writers {
    pub child: Child,
    said: Receiver<String>,
    /// Operations, refusals for lack of space, the longest wait that goes on, the slowest operation
    /// in milliseconds, and what they are.
    pub last: String,
    failure: Option<String>,
}

impl Writers {
    pub fn start(count: usize, seed: u64, points: &[PathBuf]) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|why| format!("this program: {why}"))?;
        let mut command = Command::new(program);
        command.arg("torture-writers").args([count.to_string(), seed.to_string()]).args(points);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|why| format!("the writers cannot be started: {why}"))?;
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, said) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Ok(Self { child, said, last: String::new(), failure: None })
    }

    pub fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        let _ = writeln!(input, "{line}").and_then(|()| input.flush());
    }

    /// Takes in what they said. Returns the last word that is an answer.
    pub fn listen(&mut self, timeout: Duration) -> Option<String> {
        let mut line = self.said.recv_timeout(timeout);
        let mut answer = None;
        loop {
            match line {
                Ok(line) => match line.split_once(' ') {
                    Some(("tick", rest)) => self.last = rest.into(),
                    Some(("fail", why)) => self.failure = Some(why.into()),
                    _ => answer = Some(line),
                },
                Err(RecvTimeoutError::Timeout) => return answer,
                Err(RecvTimeoutError::Disconnected) => {
                    self.failure.get_or_insert_with(|| "the writers ended".into());
                    return answer;
                }
            }
            line = self.said.try_recv().map_err(|_| RecvTimeoutError::Timeout);
        }
    }

    pub fn number(&self, at: usize) -> f64 {
        self.last.split(' ').nth(at).and_then(|word| word.parse().ok()).unwrap_or(0.0)
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A campaign that goes on. The writers end before what they write to does.
pub struct Run {
    pub writers: Writers,
    pub world: World,
    pub record: Record,
    pub counts: BTreeMap<String, u32>,
    pub longest_wait: Duration,
}

impl Run {
    pub fn event(&mut self, what: String) {
        self.record.add(what);
    }

    pub fn count(&mut self, what: &str) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    /// Whether all is well, as far as can be seen without asking.
    pub fn look(&mut self) -> Result<(), String> {
        if let Some(why) = &self.writers.failure {
            return Err(why.clone());
        }
        for process in self.world.processes() {
            if let Some(how) = process.died() {
                return Err(format!("{} {how}:\n{}", process.name, process.last_words()));
            }
        }
        let waited = self.writers.number(2);
        if waited > self.longest_wait.as_secs_f64() {
            return Err(format!("an operation takes {waited} s: {}", self.writers.last));
        }
        Ok(())
    }

    /// Tells the writers something, and waits until all of them have done it.
    pub fn have_done(&mut self, order: &str, answer: &str) -> Result<(), String> {
        self.writers.tell(order);
        let begun = Instant::now();
        loop {
            let said = self.writers.listen(Duration::from_millis(100));
            self.look()?;
            if said.as_deref() == Some(answer) {
                return Ok(());
            }
            if begun.elapsed() > self.longest_wait * 4 {
                return Err(format!("the writers do not get done: {order}"));
            }
        }
    }
}
