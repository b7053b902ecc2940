//! What operators may do on the page: commands of `weft`.

use serde::Deserialize;
use serde_json::Value;

/// What is wanted.
#[derive(Debug, Deserialize)]
pub struct Wanted {
    #[serde(rename = "do")]
    what: String,
    #[serde(default)]
    target: String,
    #[serde(default)]
    with: String,
}

/// The words of a command; the volume is where `None` stands.
#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    pub words: Vec<Option<String>>,
    /// What it is called in events.
    pub called: String,
}

impl Wanted {
    /// The command, for a volume with that state. A target must be one of the volume's.
    ///
    /// # Errors
    /// When the request has no such action, or names a target that the volume does not have.
    pub fn command(&self, status: &Value) -> Result<Command, String> {
        let Self { what, target, with } = self;
        let has = || {
            let mut targets = status["targets"].as_array().into_iter().flatten();
            targets.any(|one| one["path"].as_str() == Some(target))
        };
        let of = |command: &[&str], rest: &[&str], called: String| {
            let words = command.iter().map(|word| Some((*word).to_owned())).chain([None]);
            // What follows is no option, whatever it begins with.
            Command { words: words.chain(rest.iter().map(|word| Some((*word).to_owned()))).collect(), called }
        };
        match what.as_str() {
            "drain" | "undrain" | "replace" if !has() => Err(format!("{target} is no target of the volume")),
            "replace" if with.is_empty() || with.starts_with('-') => Err("say what takes its place".into()),
            "replace" => {
                let called = format!("replacing {target} by {with}");
                Ok(of(&["target", "replace"], &[target, with], called))
            }
            "drain" | "undrain" => Ok(of(&["target", what], &[target], format!("{what} {target}"))),
            "pause" | "resume" => Ok(of(&["rebalance"], &[what], format!("{what} rebalancing"))),
            _ => Err(format!("there is no {what:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn command(wanted: &Value) -> Result<String, String> {
        let status = json!({ "targets": [{ "path": "/d1" }, { "path": "store://h:1/d" }] });
        let wanted: Wanted = serde_json::from_value(wanted.clone()).unwrap();
        let words = wanted.command(&status)?.words;
        Ok(words.into_iter().map(|word| word.unwrap_or_else(|| "V".into())).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn actions_are_commands_that_the_program_has() {
        for (wanted, words) in [
            (json!({ "do": "drain", "target": "/d1" }), "target drain V /d1"),
            (json!({ "do": "undrain", "target": "store://h:1/d" }), "target undrain V store://h:1/d"),
            (json!({ "do": "replace", "target": "/d1", "with": "/d9" }), "target replace V /d1 /d9"),
            (json!({ "do": "pause" }), "rebalance V pause"),
            (json!({ "do": "resume" }), "rebalance V resume"),
        ] {
            assert_eq!(command(&wanted).as_deref(), Ok(words));
            let given = std::iter::once("weft").chain(words.split(' ')).map(std::ffi::OsString::from).collect();
            assert!(crate::parse(crate::commands(), given).is_ok(), "{words}");
        }
    }

    #[test]
    fn nothing_else_is_carried_out() {
        for wanted in [
            json!({ "do": "rm", "target": "/d1" }),
            json!({ "do": "drain" }),
            json!({ "do": "drain", "target": "--store" }),
            json!({ "do": "replace", "target": "/d1" }),
            json!({ "do": "replace", "target": "/d1", "with": "--force" }),
        ] {
            assert!(command(&wanted).is_err(), "{wanted}");
        }
    }
}
