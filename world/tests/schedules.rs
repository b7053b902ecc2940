//! Programs in a world. Each case runs in a process of its own, because a program has one world:
//! `schedules CASE SEED` is such a process.

use std::collections::HashMap;
use std::ffi::c_void;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime};
use world::{Options, Process};

#[global_allocator]
static ALLOCATOR: world::Preempting = world::Preempting;

fn in_world(seed: u64, work: impl FnOnce()) {
    let options = Options { seed, loud: false, most_steps: 1_000_000 };
    world::run(options, || {
        work();
        let (hash, steps) = world::trace();
        println!("{hash:016x} {steps} {:?}", world::now());
    });
}

/// Threads that share a counter, and wait for each other in different ways.
fn threads() {
    let shared = Arc::new((Mutex::new(0u32), Condvar::new()));
    let threads: Vec<_> = (0..5)
        .map(|number| {
            let shared = shared.clone();
            std::thread::spawn(move || {
                let (count, changed) = &*shared;
                for _ in 0..20 {
                    let mut count = count.lock().unwrap();
                    *count += 1;
                    changed.notify_all();
                    if number == 0 {
                        let (_count, _) = changed.wait_timeout(count, Duration::from_millis(3)).unwrap();
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*shared.0.lock().unwrap(), 100);
    let (send, receive) = sync_channel(2);
    let sender = std::thread::spawn(move || (0..50).for_each(|number| send.send(number).unwrap()));
    assert!(receive.iter().eq(0..50));
    sender.join().unwrap();
    std::thread::scope(|scope| {
        let parked = scope.spawn(std::thread::park);
        parked.thread().unpark();
    });
}

/// An hour passes at once.
fn time() {
    let (begun, wall) = (Instant::now(), SystemTime::now());
    std::thread::sleep(Duration::from_secs(3600));
    assert!((3600..3601).contains(&begun.elapsed().as_secs()));
    assert!((3600..3601).contains(&wall.elapsed().unwrap().as_secs()));
    let (_send, receive) = channel::<()>();
    assert!(receive.recv_timeout(Duration::from_secs(60)).is_err());
    assert!((3660..3661).contains(&begun.elapsed().as_secs()));
}

/// What is random is in the hash.
fn chance() {
    let map: HashMap<u32, u32> = (0..20).map(|number| (number, number)).collect();
    world::note(format_args!("{:?}", map.keys().collect::<Vec<_>>()));
    world::note(format_args!("{}", world::roll(|dice| dice.below(1000))));
}

/// A killed process does nothing more; a stopped one goes on later.
fn processes() {
    let (killed, stopped) = (Process::new("killed"), Process::new("stopped"));
    let counts = Arc::new(Mutex::new([0u32; 2]));
    for (number, process) in [killed, stopped].into_iter().enumerate() {
        let counts = counts.clone();
        process.spawn(move || {
            loop {
                counts.lock().unwrap()[number] += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
        });
    }
    let look = |after: u64| {
        std::thread::sleep(Duration::from_millis(after));
        *counts.lock().unwrap()
    };
    let first = look(1000);
    assert!(first.iter().all(|count| (90..110).contains(count)), "{first:?}");
    killed.kill();
    stopped.stop(true);
    // A thread that was running goes on to its next wait.
    let (second, third) = (look(10), look(1000));
    assert_eq!(second, third);
    stopped.stop(false);
    let last = look(1000);
    assert_eq!(last[0], third[0]);
    assert!(last[1] > third[1] + 50);
    assert!(killed.is_dead() && !stopped.is_dead());
    // Its locks are never released, and nobody else has them.
    let slow = Process::new("slow");
    slow.set_drift(-100_000);
    let lasted = slow.spawn(|| {
        let begun = (Instant::now(), world::now());
        std::thread::sleep(Duration::from_secs(9));
        (begun.0.elapsed(), world::now() - begun.1)
    });
    let (own, real) = lasted.join().unwrap();
    assert!((9.0..9.01).contains(&own.as_secs_f64()) && (9.9..10.1).contains(&real.as_secs_f64()), "{own:?} {real:?}");
    // While its machine is suspended, only one of its clocks goes on, and it sleeps for longer.
    let suspended = Process::new("suspended");
    let slept = suspended.spawn(|| {
        let begun = (Instant::now(), world::boot_time(), world::now());
        std::thread::sleep(Duration::from_secs(5));
        [begun.0.elapsed(), world::boot_time() - begun.1, world::now() - begun.2].map(|time| time.as_secs_f64())
    });
    std::thread::sleep(Duration::from_secs(1));
    suspended.suspend(true);
    std::thread::sleep(Duration::from_secs(60));
    suspended.suspend(false);
    let [own, boot, real] = slept.join().unwrap();
    assert!((5.0..5.01).contains(&own) && (65.0..65.02).contains(&boot) && (boot - real).abs() < 0.01, "{own} {boot}");
}

/// A lost update that only a thread that is interrupted between two statements makes.
fn race() {
    let count = Arc::new(Mutex::new(0));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let count = count.clone();
            std::thread::spawn(move || {
                for _ in 0..200 {
                    let found = *count.lock().unwrap();
                    drop(std::hint::black_box(Box::new(found)));
                    *count.lock().unwrap() = found + 1;
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world::note(format_args!("{}", *count.lock().unwrap()));
    println!("count {}", count.lock().unwrap());
}

/// Two threads that wait for each other.
fn deadlock() {
    let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
    let other = {
        let (a, b) = (a.clone(), b.clone());
        std::thread::spawn(move || {
            let _b = b.lock().unwrap();
            std::thread::sleep(Duration::from_millis(1));
            let _a = a.lock().unwrap();
        })
    };
    let _a = a.lock().unwrap();
    std::thread::sleep(Duration::from_millis(1));
    let _b = b.lock().unwrap();
    drop(other);
}

/// Where the memory is that a thread frees after its last moment in the world, and whether it has.
static FREED_LATE: AtomicUsize = AtomicUsize::new(0);

/// What is freed while another thread runs does not come back: two would change the same list.
fn late() {
    extern "C" fn free(block: *mut c_void) {
        // SAFETY: the thread below made it, and left it to this function.
        drop(unsafe { Box::from_raw(block.cast::<[u8; 3000]>()) });
        FREED_LATE.store(block.addr(), Ordering::SeqCst);
    }
    // The world's own key is made with the first thread, so that this one comes after it.
    std::thread::spawn(|| ()).join().unwrap();
    let mut key = 0;
    // SAFETY: `key` is a place for the result.
    assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(free)) }, 0);
    let leaves = move || {
        let block = Box::into_raw(Box::new([0u8; 3000]));
        // SAFETY: the key exists.
        assert_eq!(unsafe { libc::pthread_setspecific(key, block.cast()) }, 0);
    };
    std::thread::spawn(leaves).join().unwrap();
    while FREED_LATE.load(Ordering::SeqCst) == 0 {
        std::hint::spin_loop();
    }
    let next = std::hint::black_box(Box::new([1u8; 3000]));
    assert_ne!(next.as_ptr().addr(), FREED_LATE.load(Ordering::SeqCst));
    let dice = world::roll(|dice| dice.below(1000));
    println!("{dice}");
}

const CASES: [(&str, fn()); 7] = [
    ("late", late),
    ("threads", threads),
    ("time", time),
    ("chance", chance),
    ("processes", processes),
    ("race", race),
    ("deadlock", deadlock),
];

fn child(case: &str, seed: u64) -> (bool, String) {
    let own = std::env::current_exe().expect("this program has a name");
    let output = Command::new(own).args([case, &seed.to_string()]).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [case, seed] = &arguments[..]
        && let Some((_, work)) = CASES.iter().find(|(name, _)| name == case)
    {
        in_world(seed.parse().expect("a seed"), *work);
        return ExitCode::SUCCESS;
    }
    for (case, _) in &CASES[..6] {
        let mut all = Vec::new();
        for seed in 0..12 {
            let (well, said) = child(case, seed);
            assert!(well, "{case}, seed {seed}: {said}");
            assert_eq!(child(case, seed).1, said, "{case}, seed {seed}: two runs differ");
            all.push(said);
        }
        all.sort();
        all.dedup();
        assert!(all.len() > 2, "{case}: seeds do not matter: {all:?}");
        if *case == "race" {
            let lost = all.iter().filter(|said| !said.contains("count 400")).count();
            assert!(lost > 2, "{lost} of {all:?}");
        }
        println!("{case}: ok");
    }
    let (well, said) = child("deadlock", 1);
    assert!(!well && said.contains("all threads wait for ever") && child("deadlock", 1).1 == said, "{said}");
    println!("deadlock: ok");
    ExitCode::SUCCESS
}
