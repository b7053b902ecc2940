//! The health of a volume in one sentence, and what to do next, from the document of `weft status
//! --json`.

use crate::show;
use serde_json::Value;
use std::time::Duration;

/// How it is: good, to be looked at, or bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Good,
    Warning,
    Bad,
}

/// What is said of a volume.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Words {
    pub level: Level,
    pub sentence: String,
    pub next: String,
}

fn number(status: &Value, key: &str) -> u64 {
    status[key].as_u64().unwrap_or(0)
}

/// Targets that are not well, by path.
fn bad_targets(status: &Value) -> Vec<&str> {
    let all = status["targets"].as_array().into_iter().flatten();
    let bad = all.filter(|target| {
        let away = matches!(target["state"].as_str(), Some("down" | "out"));
        target["role"] != "removed" && (away || !target["problem"].is_null())
    });
    bad.filter_map(|target| target["path"].as_str()).collect()
}

/// The words for a volume of which nothing is known since a time (seconds since 1970; 0: never),
/// and why.
pub fn unknown(name: &str, since: u64, now: u64, why: &str) -> Words {
    let since = match (since, now.saturating_sub(since)) {
        (0, _) => String::new(),
        (_, age @ 86_400..) => format!(" for {}", show::age(Duration::from_secs(age))),
        _ => format!(" since {:02}:{:02} UTC", since / 3600 % 24, since / 60 % 60),
    };
    let sentence = format!("Nothing is known of {name}{since}: {}.", why.trim_end_matches('.'));
    let next = if since.is_empty() { "" } else { "What is shown below is as it was then." };
    Words { level: Level::Bad, sentence, next: next.into() }
}

/// The words for a state. The first rule that holds says them: the worst comes first.
pub fn of(status: &Value) -> Words {
    let words = |level, sentence: String, next: &str| Words { level, sentence, next: next.into() };
    if status["standby"] == true {
        let holder = status["holder"]["name"].as_str();
        return match holder {
            Some(holder) => words(Level::Good, format!("This server stands by; {holder} has the volume."), ""),
            None => words(Level::Bad, "No server has the volume.".into(), "See the logs of the metadata servers."),
        };
    }
    let name = status["name"].as_str().unwrap_or("The volume");
    let bad = bad_targets(status);
    let away = match &bad[..] {
        [] => String::new(),
        [one] => format!("; {one} is away or has a problem"),
        some => format!("; {} are away or have problems", show::count(some.len(), "target")),
    };
    let lost = number(status, "chunk_sets_lost");
    if lost > 0 {
        let next = "Bring the missing targets back; weft status --at-risk names the files. Replace no target before.";
        let lost = show::count(lost as usize, "chunk set");
        return words(Level::Bad, format!("{name} has lost data: {lost} cannot be read now{away}."), next);
    }
    let survive: Vec<u64> =
        status["chunk_sets_by_losses_survived"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    let (none, repairs) = (survive.first().copied().unwrap_or(0), status["repairs"].as_array().map_or(0, Vec::len));
    if none > 0 && survive.len() > 1 {
        let next = match repairs {
            0 => "Bring the targets back, or replace them: the next loss loses data.",
            _ => "Wait for the repair, and take no target away: the next loss loses data.",
        };
        let none = show::count(none as usize, "chunk set");
        return words(
            Level::Bad,
            format!("{name} keeps everything, but {none} would not survive another loss{away}."),
            next,
        );
    }
    let to_repair = number(status, "chunk_sets_to_repair");
    if to_repair > 0 {
        let bytes = show::bytes(number(status, "bytes_to_repair"));
        let sets = show::count(to_repair as usize, "chunk set");
        let next = match (repairs, bad.len()) {
            (1.., _) => "Wait for the repair.",
            (0, 0) => "Run weft volume repair.",
            (0, _) => "Bring it back, or replace it. A cluster repairs by itself when a store is away for long.",
        };
        let are = if to_repair == 1 { "is" } else { "are" };
        let sentence = format!("{name} keeps everything, and {sets} with {bytes} {are} to be repaired{away}.");
        return words(Level::Warning, sentence, next);
    }
    if !bad.is_empty() {
        let away = away.trim_start_matches("; ").to_owned();
        return words(Level::Warning, format!("{name} keeps everything, but {away}."), "Bring it back, or replace it.");
    }
    if status["nearly_full"] == true {
        let next = "Add a target (weft target add), or remove files.";
        return words(Level::Warning, format!("{name} is nearly full: less than 5 % is free."), next);
    }
    if number(status, "new_data_targets") < number(status, "new_data_targets_wanted") {
        let next = "Add a target, or bring back what is away.";
        return words(Level::Warning, format!("{name} writes new data with less redundancy than it should."), next);
    }
    if let Some(why) = status["metadata_error"].as_str() {
        return words(Level::Warning, format!("{name} has trouble with its metadata: {why}."), "See the server's log.");
    }
    if status["healthy"] == false {
        return words(Level::Warning, format!("{name} needs attention."), "weft status says more.");
    }
    let next = if status["verified_at"].is_null() {
        "It was never verified: run weft volume verify, and once a month from then on."
    } else {
        ""
    };
    words(Level::Good, format!("{name} is healthy."), next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A healthy document, changed.
    fn said(change: impl FnOnce(&mut Value)) -> Words {
        let mut status = json!({
            "name": "films", "healthy": true, "chunk_sets_lost": 0, "chunk_sets_by_losses_survived": [0, 0, 4],
            "chunk_sets_to_repair": 0, "bytes_to_repair": 0, "repairs": [], "nearly_full": false, "verified_at": 5,
            "new_data_targets": 6, "new_data_targets_wanted": 6, "metadata_error": null,
            "targets": [{ "path": "/d1", "role": "active", "state": "up", "problem": null }],
        });
        change(&mut status);
        of(&status)
    }

    #[test]
    fn the_worst_is_said_first_with_what_to_do() {
        let good = said(|_| {});
        assert_eq!((good.level, &*good.sentence, &*good.next), (Level::Good, "films is healthy.", ""));
        assert!(said(|status| status["verified_at"] = Value::Null).next.contains("never verified"));
        let down = said(|status| status["targets"][0]["state"] = "down".into());
        assert_eq!(down.sentence, "films keeps everything, but /d1 is away or has a problem.");
        let repair = |status: &mut Value| {
            status["targets"][0]["state"] = "out".into();
            status["chunk_sets_to_repair"] = 2.into();
            status["bytes_to_repair"] = 2048.into();
        };
        let waiting = said(repair);
        assert_eq!(waiting.level, Level::Warning);
        assert!(waiting.sentence.contains("2 chunk sets with 2.0 KiB are to be repaired; /d1"), "{waiting:?}");
        let risk = said(|status| {
            repair(status);
            status["chunk_sets_by_losses_survived"] = json!([1, 0, 3]);
            status["repairs"] = json!([{}]);
        });
        assert!(
            risk.level == Level::Bad && risk.next.contains("Wait for the repair, and take no target away"),
            "{risk:?}"
        );
        let lost = said(|status| {
            repair(status);
            status["chunk_sets_lost"] = 1.into();
        });
        assert!(lost.level == Level::Bad && lost.sentence.contains("1 chunk set cannot be read"), "{lost:?}");
        assert!(said(|status| status["nearly_full"] = true.into()).sentence.contains("nearly full"));
        assert!(said(|status| status["healthy"] = false.into()).sentence.contains("needs attention"));
    }

    #[test]
    fn what_is_not_known_is_not_good() {
        let words = unknown("films", 86_400 + 7_380, 86_400 + 7_500, "nobody answers.");
        assert_eq!(words.sentence, "Nothing is known of films since 02:03 UTC: nobody answers.");
        assert!(words.level == Level::Bad && words.next.contains("as it was then"));
        let words = unknown("films", 1, 3 * 86_400 + 5, "nobody answers");
        assert_eq!(words.sentence, "Nothing is known of films for 3 days: nobody answers.");
        assert_eq!(unknown("films", 0, 5, "x").sentence, "Nothing is known of films: x.");
    }

    #[test]
    fn a_standby_says_who_has_the_volume() {
        let stands_by = of(&json!({ "standby": true, "holder": { "name": "meta1" } }));
        assert_eq!(stands_by.sentence, "This server stands by; meta1 has the volume.");
        assert_eq!(of(&json!({ "standby": true, "holder": null })).level, Level::Bad);
    }
}
