//! Commands in today's spelling and in the earlier one: they are the same.

use crate::scratch::{Scratch, noise, run, weft};
use crate::volumes::Volume;
use std::fs;

#[test]
fn each_old_spelling_has_the_help_of_the_new_one() {
    for (old, new) in [
        (&["create"][..], &["volume", "create"][..]),
        (&["reopen"], &["volume", "open"]),
        (&["fsck"], &["volume", "fsck"]),
        (&["verify"], &["volume", "verify"]),
        (&["repair"], &["volume", "repair"]),
        (&["verify", "--from", "d"], &["file", "verify"]),
        (&["repair", "--from", "d"], &["file", "repair"]),
        (&["encode"], &["file", "encode"]),
        (&["decode"], &["file", "decode"]),
        (&["inspect"], &["file", "inspect"]),
        (&["cluster", "d"], &["cluster", "dev"]),
        (&["umount"], &["unmount"]),
    ] {
        let help = |words: &[&str]| run(weft().args(words).arg("--help")).good();
        let (before, now) = (help(old), String::from_utf8(help(new)).unwrap());
        assert!(before == now.as_bytes(), "{old:?}");
        assert!(now.contains(&format!("Usage: weft {}", new.join(" "))), "{now}");
        assert!(now.contains("\nExamples:\n") && now.contains(&format!("  weft {}", new.join(" "))), "{now}");
    }
}

#[test]
fn a_file_goes_through_fragments_in_both_spellings() {
    let scratch = Scratch::new(6);
    let file = scratch.file("f", 100_000);
    for group in [&[][..], &["file"]] {
        let on = |command: &str, more: &[&str]| {
            run(weft().args(group).args([command, "f"]).args(more).arg("--from").args(&scratch.disks))
        };
        run(weft().args(group).arg("encode").arg(&file).args(["--force", "--to"]).args(&scratch.disks)).good();
        fs::remove_file(scratch.fragment("f", 1)).unwrap();
        assert_eq!(on("verify", &[]).status, 1);
        on("repair", &[]).good();
        on("verify", &[]).good();
        on("decode", &["--out", scratch.out().to_str().unwrap(), "--force"]).good();
        assert!(fs::read(scratch.out()).unwrap() == noise(100_000));
        run(weft().args(group).arg("inspect").arg(scratch.fragment("f", 1))).good();
    }
}

#[test]
fn a_volume_is_looked_after_in_both_spellings() {
    for group in [&[][..], &["volume"]] {
        let volume = Volume::new("rs:2+1", 3);
        volume.put(volume.scratch.file("f", 50_000), "f").good();
        let on = |words: &[&str], more: &[&str]| run(weft().args(words).arg(&volume.path).args(more));
        let each = |command: &'static str| [group, &[command]].concat();
        fs::remove_dir_all(&volume.path).unwrap();
        let targets: Vec<&str> = volume.scratch.disks.iter().map(|disk| disk.to_str().unwrap()).collect();
        on(&each(if group.is_empty() { "reopen" } else { "open" }), &targets).good();
        for command in ["verify", "repair", "fsck", "status"] {
            on(&each(command), &[]).good();
        }
        let refused = on(&each("create"), &targets).failed(1);
        assert!(refused.contains("is a target of a volume already"), "{refused}");
    }
}

#[test]
fn options_stand_where_they_mean_something() {
    let volume = Volume::new("rs:2+1", 3);
    let ended = run(weft().args(["--json", "volume", "status"]).arg(&volume.path));
    assert_eq!(ended.json()["healthy"], true);
    let said = |words: &[&str]| {
        let ended = run(weft().args(words));
        assert_eq!(ended.status, 2, "{words:?}");
        ended.errors
    };
    assert!(said(&["--identity", "x", "codes"]).contains("unexpected argument '--identity'"));
    assert!(said(&["--config", "/dev/null", "codes"]).contains("unexpected argument '--config'"));
    assert!(said(&["drian", "v", "d"]).contains("'target drain'"));
    assert!(said(&["frobnicate"]).contains("unrecognized subcommand"));
}

#[test]
fn shells_complete_the_commands_and_man_shows_them() {
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(run(weft().args(["completions", shell])).good()).unwrap();
        assert!(["weft", "create", "undrain", "domain-level"].iter().all(|word| script.contains(word)), "{shell}");
    }
    // The shell takes the script.
    let mut bash = std::process::Command::new("bash");
    bash.args(["-c", "source <(\"$0\" completions bash) && complete -p weft", env!("CARGO_BIN_EXE_weft")]);
    run(&mut bash).good();
    let scratch = Scratch::new(0);
    run(weft().arg("man").arg(&scratch.path)).good();
    let page = fs::read_to_string(scratch.path.join("weft-volume-create.1")).unwrap();
    assert!(page.contains("chunk\\-bytes") && page.contains("weft volume create"), "{page}");
    assert!(run(weft().arg("man").arg(&scratch.path)).failed(1).contains("give --force"));
}

#[test]
fn an_upgrade_says_from_and_to_which_format() {
    let volume = Volume::new("rs:2+1", 3);
    let told = volume.on(&["volume", "upgrade"]).good();
    assert!(String::from_utf8(told).unwrap().contains("is of format 2; there is nothing to upgrade"));
    let told = volume.on(&["volume", "upgrade", "--json"]).good();
    let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
    assert_eq!((&told["from"], &told["to"]), (&2.into(), &2.into()));
    let served = run(weft().args(["volume", "upgrade", "weft://127.0.0.1:1/v"])).failed(2);
    assert!(served.contains("is served"), "{served}");
}
