//! What happened between two looks at a volume, in words.

use serde_json::Value;
use std::collections::BTreeMap;

/// The targets that a document names, and how each is.
fn targets(status: &Value) -> BTreeMap<&str, String> {
    let all = status["targets"].as_array().into_iter().flatten();
    let state = |target: &Value| {
        let word = |key: &str| target[key].as_str().unwrap_or_default();
        // As `stateOf` of the page.
        match (word("role"), word("state"), target["problem"].as_str()) {
            ("removed", ..) => "removed".to_owned(),
            (_, "" | "up", Some(why)) => format!("bad ({why})"),
            (_, state, Some(why)) => format!("{state} ({why})"),
            ("draining", _, None) => "draining".to_owned(),
            (_, "", None) => "up".to_owned(),
            (_, state, None) => state.to_owned(),
        }
    };
    all.filter_map(|target| Some((target["path"].as_str()?, state(target)))).collect()
}

/// The server that has the volume.
fn holder(status: &Value) -> Option<&str> {
    let servers = status["servers"].as_array()?;
    servers.iter().find(|server| server["holder"] == true)?["name"].as_str()
}

/// What happened, the most important first.
pub fn between(before: &Value, after: &Value) -> Vec<String> {
    let mut events = Vec::new();
    let (was, is) = (holder(before), holder(after));
    if let (true, Some(is)) = (was.is_some() && was != is, is) {
        events.push(format!("{is} has the volume now"));
    }
    let (were, are) = (targets(before), targets(after));
    for (path, state) in &are {
        match were.get(path) {
            None if !were.is_empty() => events.push(format!("target {path} was added")),
            Some(earlier) if earlier != state => events.push(format!("target {path} is {state}, was {earlier}")),
            _ => {}
        }
    }
    events.extend(were.keys().filter(|path| !are.contains_key(*path)).map(|path| format!("target {path} is gone")));
    let repairs = |status: &Value| status["repairs"].as_array().map_or(0, Vec::len);
    match (repairs(before), repairs(after)) {
        (0, 1..) => events.push("a repair began".into()),
        (1.., 0) => events.push("the repair ended".into()),
        _ => {}
    }
    let moving = |status: &Value| status["rebalance"]["state"].as_str().map(str::to_owned);
    if let (Some(was), Some(is)) = (moving(before), moving(after))
        && was != is
    {
        events.push(format!("rebalancing: {is}"));
    }
    let lost = |status: &Value| status["chunk_sets_lost"].as_u64().unwrap_or(0);
    if lost(after) != lost(before) {
        events.push(format!("chunk sets that cannot be read: {}", lost(after)));
    }
    if before["healthy"] != after["healthy"] && !before["healthy"].is_null() {
        events.push(if after["healthy"] == true { "healthy again" } else { "needs attention" }.into());
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(state: &str, role: &str, healthy: bool, repairs: usize) -> Value {
        json!({
            "healthy": healthy, "chunk_sets_lost": 0, "repairs": vec![json!({}); repairs],
            "targets": [{ "path": "/d1", "role": role, "state": state, "problem": null }],
            "servers": [{ "name": "m1", "holder": state == "up" }, { "name": "m2", "holder": state != "up" }],
        })
    }

    #[test]
    fn changes_are_told_and_nothing_else() {
        let good = status("up", "active", true, 0);
        assert!(between(&good, &good).is_empty());
        let bad = status("down", "active", false, 1);
        let told = between(&good, &bad);
        assert_eq!(told, ["m2 has the volume now", "target /d1 is down, was up", "a repair began", "needs attention"]);
        let told = between(&bad, &good);
        assert!(told.contains(&"healthy again".into()) && told.contains(&"the repair ended".into()), "{told:?}");
        let told = between(&good, &status("up", "draining", true, 0));
        assert_eq!(told, ["target /d1 is draining, was up"]);
        let mut broken = status("up", "draining", true, 0);
        broken["targets"][0]["problem"] = "no answer".into();
        assert_eq!(between(&good, &broken), ["target /d1 is bad (no answer), was up"]);
        assert!(between(&Value::Null, &good).is_empty(), "the first look");
    }
}
