//! The alert rules of `docs/monitoring`, by Prometheus's own tool.

use crate::NOT_HERE;
use crate::peers::run;
use std::path::Path;
use std::process::Command;

/// Checks the rules and runs their tests.
pub fn check(root: &Path) -> Result<(), String> {
    let promtool = |what: &str, file: &str| {
        let file = root.join("docs/monitoring").join(file);
        run(Command::new("promtool").args([what, "rules"]).arg(file)).map(drop)
    };
    run(Command::new("promtool").arg("--version"))
        .map_err(|why| format!("{NOT_HERE}: promtool, of Debian's package prometheus: {why}"))?;
    promtool("check", "weft.rules.yml")?;
    promtool("test", "weft.rules.test.yml")
}
