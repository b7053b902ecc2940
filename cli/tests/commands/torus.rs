//! Volumes whose servers are in a torus. A directory counts as a server of its own.

use crate::scratch::{Ended, Scratch, run, weft};
use crate::volumes::Volume;
use serde_json::Value;

fn text(ended: Ended) -> String {
    String::from_utf8(ended.good()).unwrap()
}

/// A volume of six disks in a torus, the last at 1,0.
fn volume() -> Volume {
    let scratch = Scratch::new(6);
    let path = scratch.path.join("a volume");
    let at = format!("{}=1,0", scratch.disks[5].display());
    let create = ["--code", "rs:2+1", "--torus", "2,4", "--at", &at];
    run(weft().arg("create").arg(&path).args(create).args(&scratch.disks)).good();
    Volume { scratch, path }
}

impl Volume {
    fn placement(&self, more: &[&str]) -> Ended {
        run(weft().args(["target", "placement"]).arg(&self.path).args(more))
    }

    fn places(&self) -> Vec<String> {
        let torus = &self.placement(&["--json"]).json()["torus"];
        let at = |target: &Value| target["at"].as_str().unwrap().to_owned();
        torus["targets"].as_array().unwrap().iter().map(at).collect()
    }
}

#[test]
fn a_volume_is_made_in_a_torus_and_says_where_its_targets_are() {
    let volume = volume();
    assert_eq!(volume.places(), ["0,0", "0,1", "0,2", "0,3", "1,1", "1,0"]);
    let shown = text(volume.placement(&[]));
    assert!(shown.starts_with("new data is placed by random, in the torus 2,4\n"), "{shown}");
    assert!(shown.contains(&format!("{} is at 1,0\n", volume.scratch.disks[5].display())), "{shown}");
    // A target that joins gets the next free place, or one that is said.
    let new = [6, 7, 8].map(|number| volume.scratch.path.join(format!("disk {number}")));
    volume.target("add", &[&new[0]]).good();
    let add = |disk, at| run(weft().args(["target", "add"]).arg(&volume.path).arg(disk).args(["--at", at]));
    assert!(add(&new[1], "0,0").failed(1).contains("cannot both be at 0,0"));
    add(&new[1], "1,3").good();
    assert_eq!(volume.places()[6..], ["1,2", "1,3"]);
    let full = volume.target("add", &[&new[2]]).failed(1);
    assert!(full.contains("the torus 2,4 has 8 places, and there are 9 servers"), "{full}");
    assert_eq!(volume.places().len(), 8);
    // What failed left nothing behind.
    volume.placement(&["--torus", "3,4"]).good();
    volume.target("add", &[&new[2]]).good();
    assert_eq!(volume.places()[8], "2,0");
    volume.is_healthy();
}

#[test]
fn explain_shows_hops() {
    let volume = volume();
    volume.put(volume.scratch.file("f", 300_000), "").good();
    let shown = text(volume.placement(&["--explain", "1"]));
    let mut lines = shown.lines().skip_while(|line| !line.starts_with("what its choice saw"));
    let first = lines.nth(1).unwrap();
    assert!(first.starts_with("    1  ") && first.contains(", 0 hops): taken for position "), "{shown}");
    let explained = volume.placement(&["--explain", "1", "--json"]).json();
    let targets = explained["targets"].as_array().unwrap();
    // Three of the first four of the policy: they are sorted by hops, the others are not.
    let hops: Vec<u64> = targets[..4].iter().map(|target| target["hops"].as_u64().unwrap()).collect();
    assert!(hops.is_sorted() && hops[0] == 0, "{shown}");
    assert_eq!(targets.iter().filter(|target| target["at"].is_string()).count(), 6);
    assert!(shown.contains("chunk set 1 is on, with hops from "), "{shown}");
}

#[test]
fn a_torus_comes_and_goes() {
    let volume = Volume::new("rs:2+1", 5);
    assert!(volume.placement(&["--json"]).json()["torus"].is_null());
    volume.put(volume.scratch.file("before", 100_000), "").good();
    let said = text(volume.placement(&["adaptive", "--torus", "5"]));
    assert!(said.contains("by adaptive") && said.contains("in the torus 5; what is there stays"), "{said}");
    assert_eq!(volume.places(), ["0", "1", "2", "3", "4"]);
    // Without a policy, that stays as it is; others stay where they are.
    let (one, other) = (volume.scratch.disks[0].display(), volume.scratch.disks[4].display());
    let said = text(volume.placement(&["--at", &format!("{one}=4"), "--at", &format!("{other}=0")]));
    assert!(said.contains("by adaptive"), "{said}");
    assert_eq!(volume.places(), ["4", "1", "2", "3", "0"]);
    volume.put(volume.scratch.file("within", 100_000), "").good();
    volume.is_healthy();
    let said = text(volume.placement(&["--torus", "none"]));
    assert!(said.contains("by adaptive") && !said.contains("torus"), "{said}");
    assert!(volume.placement(&["--explain", "next", "--json"]).json()["targets"][0]["hops"].is_null());
    volume.is_healthy();
}

#[test]
fn a_wrong_torus_is_one_line() {
    let scratch = Scratch::new(4);
    let path = scratch.path.join("v");
    let create = |more: &[&str]| {
        let create = run(weft().arg("create").arg(&path).args(["--code", "rs:2+1"]).args(more).args(&scratch.disks));
        assert!(create.status != 0 && !path.exists(), "{more:?}");
        assert!(scratch.disks.iter().all(|disk| !disk.join("weft.label").exists()), "{more:?}");
        create.errors
    };
    let small = create(&["--torus", "1,3"]);
    assert_eq!(small.trim_end(), "weft: the torus 1,3 has 3 places, and there are 4 servers");
    for wrong in ["0", "4,0", "1,1,1,1,1,1,1,1,4", "a,b", "-4", ""] {
        let said = create(&[&format!("--torus={wrong}")]);
        assert!(said.contains("at most 8 numbers above 0, such as 8,8,16"), "{wrong}: {said}");
    }
    let disk = scratch.disks[0].display();
    let place = |at: &str| format!("--at={disk}={at}");
    assert!(create(&["--torus", "2,2", &place("2,0")]).contains("2,0 is not a place in the torus 2,2"));
    assert!(create(&["--torus", "2,2", &place("x")]).contains("a place in a torus"));
    assert!(create(&[&place("1,1")]).contains("--torus"));
    assert!(
        create(&["--torus", "2,2", "--at", "/elsewhere=1,1"]).contains("/elsewhere, which is not among the targets")
    );
    let volume = Volume::new("rs:2+1", 3);
    let of = |at: &str| volume.placement(&["--at", &format!("{}={at}", volume.scratch.disks[0].display())]);
    assert!(of("0").failed(1).contains("has no torus"));
    assert!(volume.placement(&["--torus", "2"]).failed(1).contains("has 2 places, and there are 3 servers"));
    assert!(volume.placement(&[]).good().starts_with(b"new data is placed by random\n"));
}
