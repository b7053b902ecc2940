//! The paths that a Rust file uses, as far as a look at its words tells them: no types, no macros.

/// All paths that begin with `crate` or `super`, as seen from module `module`, in their full length
/// from the crate's root, without repetitions. What stands below `#[cfg(test)]` does not count.
pub fn used(text: &str, module: &[String]) -> Vec<Vec<String>> {
    let tokens = without_tests(tokens(text));
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let continues = at >= 1 && (tokens[at - 1] == "::" || tokens[at - 1] == ".");
        if continues || tokens.get(at + 1).map(String::as_str) != Some("::") {
            continue;
        }
        let start = match tokens[at].as_str() {
            "crate" => Vec::new(),
            "super" => module[..module.len().saturating_sub(1)].to_vec(),
            _ => continue,
        };
        expand(&tokens, &mut (at + 2), start, &mut found);
    }
    found.sort();
    found.dedup();
    found
}

/// The names that a crate's root passes on, each with the path it comes from:
/// `pub use data::store::Store`.
pub fn passed_on(root: &str) -> Vec<(String, Vec<String>)> {
    let tokens = without_tests(tokens(root));
    let mut found = Vec::new();
    for at in 1..tokens.len() {
        let is_public = tokens[at - 1] == "pub" || tokens[at - 1] == ")";
        if tokens[at] == "use" && is_public {
            let mut paths = Vec::new();
            expand(&tokens, &mut (at + 1), Vec::new(), &mut paths);
            found.extend(paths.into_iter().filter_map(|path| Some((path.last()?.clone(), path))));
        }
    }
    found
}

/// What a file takes from other files of its crate.
#[derive(Debug, Default)]
pub struct Imports {
    /// What `use` names, with the path from the root that it comes from. Other files find it here.
    pub names: Vec<(String, Vec<String>)>,
    /// The paths that the file itself needs. What it only passes on is not among them.
    pub needed: Vec<Vec<String>>,
    /// The modules below it that are only for tests.
    pub tests: Vec<String>,
}

/// What the file of a module takes from other files of its crate.
pub fn imports(text: &str, module: &[String]) -> Imports {
    let all = tokens(text);
    let declared = |tokens: &[String]| -> Vec<String> {
        let pairs = tokens.windows(2).filter(|pair| pair[0] == "mod" && is_name(&pair[1]));
        pairs.map(|pair| pair[1].clone()).collect()
    };
    let of_all = declared(&all);
    let tokens = without_tests(all);
    let children = declared(&tokens);
    let mut found = Imports {
        tests: of_all.into_iter().filter(|name| !children.contains(name)).collect(),
        needed: used(text, module),
        ..Imports::default()
    };
    let (mut statements, mut others) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at] != "use" {
            // A function or method of the same name is another thing.
            if !matches!(at.checked_sub(1).map(|before| tokens[before].as_str()), Some("fn" | ".")) {
                others.push(tokens[at].as_str());
            }
            at += 1;
            continue;
        }
        let is_public = at > 0 && (tokens[at - 1] == "pub" || tokens[at - 1] == ")");
        statements.push((at + 1, is_public));
        while tokens.get(at).is_some_and(|token| token != ";") {
            at += 1;
        }
    }
    for (first, is_public) in statements {
        let Some(token) = tokens.get(first).map(String::as_str) else { continue };
        let parent = &module[..module.len().saturating_sub(1)];
        let (mut from, start) = match token {
            "crate" => (first + 2, Vec::new()),
            "super" => (first + 2, parent.to_vec()),
            "self" => (first + 2, module.to_vec()),
            child if children.iter().any(|name| name == child) => (first, module.to_vec()),
            _ => continue,
        };
        let mut paths = Vec::new();
        expand(&tokens, &mut from, start, &mut paths);
        for path in paths {
            let name = path.last().cloned().unwrap_or_default();
            let only_passes_on = is_public && !others.contains(&name.as_str());
            match only_passes_on {
                true => found.needed.retain(|needed| *needed != path),
                false => found.needed.push(path.clone()),
            }
            found.names.push((name, path));
        }
    }
    found.needed.sort();
    found.needed.dedup();
    found
}

/// Follows a path from `at`, through braces, and adds every end.
fn expand(tokens: &[String], at: &mut usize, mut path: Vec<String>, found: &mut Vec<Vec<String>>) {
    while let Some(token) = tokens.get(*at).map(String::as_str) {
        match token {
            "{" => {
                *at += 1;
                while tokens.get(*at).is_some_and(|token| token != "}") {
                    match tokens[*at].as_str() {
                        "," => *at += 1,
                        _ => expand(tokens, at, path.clone(), found),
                    }
                }
                *at += 1;
                return;
            }
            "super" => drop(path.pop()),
            "self" | "*" => {}
            name if is_name(name) => path.push(name.to_owned()),
            _ => {
                // Not a part of a path: the caller skips it.
                *at += 1;
                break;
            }
        }
        *at += 1;
        if tokens.get(*at).map(String::as_str) != Some("::") {
            // `a as b`
            if tokens.get(*at).map(String::as_str) == Some("as") {
                *at += 2;
            }
            break;
        }
        *at += 1;
    }
    if !path.is_empty() {
        found.push(path);
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Drops every item that is marked `#[cfg(test)]`.
fn without_tests(tokens: Vec<String>) -> Vec<String> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at..].len() >= MARK.len() && tokens[at..].iter().zip(MARK).all(|(token, mark)| token == mark) {
            at = end_of_item(&tokens, at + MARK.len());
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Behind the semicolon, or the brace, that ends the item which begins at `from`.
fn end_of_item(tokens: &[String], from: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 && (token == ";" || token == "}") {
            return at + 1;
        }
    }
    tokens.len()
}

/// Names, `::` and single signs; neither comments nor the text of strings.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let (mut out, mut at) = (Vec::new(), 0);
    let is = |at: usize, sign: char| chars.get(at) == Some(&sign);
    while at < chars.len() {
        let c = chars[at];
        if c == '/' && is(at + 1, '/') {
            at = (at..chars.len()).find(|&i| chars[i] == '\n').unwrap_or(chars.len());
        } else if c == '/' && is(at + 1, '*') {
            at = (at + 2..chars.len()).find(|&i| chars[i] == '*' && is(i + 1, '/')).map_or(chars.len(), |i| i + 2);
        } else if c == '"' {
            at += 1;
            while at < chars.len() && chars[at] != '"' {
                at += if chars[at] == '\\' { 2 } else { 1 };
            }
            at += 1;
        } else if c == 'r' && (is(at + 1, '"') || is(at + 1, '#') && (is(at + 2, '"') || is(at + 2, '#'))) {
            let hashes = (at + 1..chars.len()).take_while(|&i| chars[i] == '#').count();
            let closed = |i: usize| chars[i] == '"' && (1..=hashes).all(|offset| is(i + offset, '#'));
            at = (at + hashes + 2..chars.len()).find(|&i| closed(i)).map_or(chars.len(), |i| i + hashes + 1);
        } else if c == '\'' {
            // A character, or a lifetime.
            at += match (is(at + 1, '\\'), is(at + 2, '\'')) {
                (true, _) => (at + 3..chars.len()).find(|&i| chars[i] == '\'').map_or(1, |i| i + 1 - at),
                (false, true) => 3,
                (false, false) => 1,
            };
        } else if c.is_alphanumeric() || c == '_' {
            let end =
                (at..chars.len()).find(|&i| !chars[i].is_alphanumeric() && chars[i] != '_').unwrap_or(chars.len());
            out.push(chars[at..end].iter().collect());
            at = end;
        } else if c == ':' && is(at + 1, ':') {
            out.push("::".into());
            at += 2;
        } else {
            if !c.is_whitespace() {
                out.push(c.into());
            }
            at += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(paths: Vec<Vec<String>>) -> Vec<String> {
        paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn paths_are_found_in_uses_and_in_code_and_not_in_comments_strings_and_tests() {
        let text = r##"
            // crate::comment::A  /* crate::comment::B */
            use crate::{a::{self, B as C, d::*}, e};
            use super::super::f::G;
            fn h<'a>(x: &'a str) -> char { crate::i::j(x, "crate::text::K \" crate::text::L"); super::m::N; '"' }
            const RAW: &str = r#"crate::raw::O "quoted" "#;
            #[cfg(test)]
            use crate::tested::P;
            macro_rules! q { () => { $crate::r::S } }
            #[cfg(test)]
            mod tests { use crate::tested::T; fn u() { crate::tested::V; } }
        "##;
        let module = ["own".to_owned(), "part".to_owned()];
        let expected = ["a", "a::B", "a::d", "e", "f::G", "i::j", "own::m::N", "r::S"];
        assert_eq!(joined(used(text, &module)), expected);
    }

    #[test]
    fn a_root_passes_names_on() {
        let found = passed_on("pub use data::{Store, read::Seek};\nuse hidden::A;\npub(crate) use clock::now;\n");
        let found: Vec<String> = found.into_iter().map(|(name, path)| format!("{name} {}", path.join("::"))).collect();
        assert_eq!(found, ["Store data::Store", "Seek data::read::Seek", "now clock::now"]);
    }
}
