//! The manifests for Kubernetes: the templates of the chart with its own values, for those who have
//! no Helm. `packages/kubernetes/chart` is what is edited.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The namespace of the manifests, as `namespace.yaml` has it.
const NAMESPACE: &str = "weft-csi";
const FILES: [&str; 2] = ["driver.yaml", "storageclass.yaml"];

/// Writes the manifests, or checks that they are written.
///
/// # Errors
/// When a file cannot be read or written, or, in a check, is not what it should be.
pub fn manifests(root: &Path, write: bool) -> Result<(), String> {
    let folder = root.join("packages/kubernetes");
    let chart = folder.join("chart");
    let read = |path: &Path| fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()));
    let values = values(&read(&chart.join("values.yaml"))?);
    for file in FILES {
        let rendered = render(&read(&chart.join("templates").join(file))?, &values)?;
        let path = folder.join(file);
        if write {
            fs::write(&path, rendered).map_err(|why| format!("{}: {why}", path.display()))?;
        } else if read(&path)? != rendered {
            return Err(format!(
                "{} is not its template with the chart's values: cargo xtask manifests",
                path.display()
            ));
        }
    }
    Ok(())
}

/// The values of lines `name: value`.
fn values(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": "));
    let mut values: BTreeMap<String, String> =
        lines.map(|(name, value)| (format!(".Values.{name}"), value.trim_matches('"').into())).collect();
    values.insert(".Release.Namespace".into(), NAMESPACE.into());
    values
}

/// A template with its values. It may have names of them, and lines that depend on whether one is
/// empty.
fn render(template: &str, values: &BTreeMap<String, String>) -> Result<String, String> {
    let value = |name: &str| values.get(name).ok_or(format!("a template has {name:?}, which has no value"));
    let (mut rendered, mut is_shown) = (String::new(), true);
    for line in template.lines() {
        match line.trim().strip_prefix("{{- ").and_then(|line| line.strip_suffix(" }}")) {
            Some("end") => is_shown = true,
            Some(test) => {
                let name = test.strip_prefix("if ").ok_or(format!("a template has {test:?}"))?;
                is_shown = !value(name)?.is_empty();
            }
            None if is_shown => {
                let mut rest = line;
                while let Some((before, (name, after))) =
                    rest.split_once("{{ ").and_then(|(before, rest)| Some((before, rest.split_once(" }}")?)))
                {
                    rendered += before;
                    rendered += value(name)?;
                    rest = after;
                }
                rendered += rest;
                rendered.push('\n');
            }
            None => {}
        }
    }
    Ok(rendered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_have_values_and_lines_that_depend_on_them() {
        let values = values("# one: 1\none: \"a\"\nnone: \"\"\n");
        let template = "x\n {{- if .Values.one }}\n{{ .Values.one }}-{{ .Release.Namespace }}\n {{- end }}\n\
            {{- if .Values.none }}\nno\n{{- end }}\ny\n";
        assert_eq!(render(template, &values).unwrap(), "x\na-weft-csi\ny\n");
        render("{{ .Values.two }}", &values).unwrap_err();
    }
}
