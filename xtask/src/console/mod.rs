//! `cargo xtask console`: the page of `weft console` in a headless Chromium, on a cluster that
//! loses a store.

mod browser;

use crate::peers::run;
use crate::torture::process::Process;
use browser::Browser;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What it is looked at with: name, width, height, and whether it is dark.
const SCREENS: [(&str, u32, u32, bool); 4] =
    [("desk", 1440, 900, false), ("night", 1440, 900, true), ("phone", 390, 844, false), ("wall", 3840, 2160, true)];

/// Starts a command that says in JSON that it is ready. Returns what it says.
fn start(weft: &Path, folder: &Path, name: &str, arguments: &[&str]) -> Result<(Process, Value), String> {
    let arguments = std::iter::once(&"--json").chain(arguments).map(OsString::from).collect();
    let process = Process::new(weft, name.into(), arguments, folder);
    process.start()?;
    let said = fs::read(folder.join(format!("{name}.out"))).map_err(|why| format!("{name}: {why}"))?;
    let document = serde_json::from_slice(&said).map_err(|why| format!("{name}: {why}"))?;
    Ok((process, document))
}

/// Looks at the page on all screens, and uses it with the keyboard.
pub fn check(root: &Path, weft: &Path) -> Result<(), String> {
    let folder = root.join("target/console");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut browser = Browser::start(&folder)?;
    let text = |path: PathBuf| path.to_str().map(str::to_owned).ok_or("the project's path is not UTF-8");
    let disks: Vec<String> = (0..7).map(|n| text(folder.join(format!("disk{n}")))).collect::<Result<_, _>>()?;
    for disk in &disks {
        fs::create_dir(disk).map_err(|why| format!("{disk}: {why}"))?;
    }
    let (mut stores, mut targets) = (Vec::new(), Vec::new());
    for (n, disk) in disks.iter().enumerate() {
        let domain = format!("rack{}/host{}", n / 3 + 1, n + 1);
        let serve = ["serve", "store", disk, "--listen", "127.0.0.1:0", "--domain", &domain];
        let store = start(weft, &folder, &format!("store{n}"), &serve)?;
        targets.push(format!("store://{}/disk{n}", store.1["listen"].as_str().unwrap_or_default()));
        stores.push(store.0);
    }
    let volume = text(folder.join("films"))?;
    let mut create = Command::new(weft);
    run(create.args(["volume", "create", &volume, "--code", "rs:4+2"]).args(&targets))?;
    let meta = ["serve", "meta", &volume, "--listen", "127.0.0.1:0", "--metrics", "0", "--down-out", "3600"];
    let (_meta, ready) = start(weft, &folder, "meta", &meta)?;
    let word = |document: &Value, key: &str| document[key].as_str().unwrap_or_default().to_owned();
    let address = format!("weft://{}/films", word(&ready, "listen"));
    run(Command::new(weft).args(["cp", "-r"]).arg(root.join("docs")).arg(format!("{address}:/")))?;
    let key = text(folder.join("key"))?;
    let metrics = word(&ready, "metrics");
    let console = ["console", &address, "--listen", "127.0.0.1:0", "--key-file", &key, "--every", "1", "--metrics"];
    let (_console, ready) = start(weft, &folder, "console", &[&console[..], &[&metrics]].concat())?;
    let page = format!("http://{}/", word(&ready, "listen"));
    let secret = fs::read_to_string(&key).map_err(|why| format!("{key}: {why}"))?;
    browser.call("Page.navigate", json!({ "url": page }))?;
    browser.wait("document.querySelector('#sentence')?.textContent.includes('healthy')")?;
    screens(&mut browser, &folder, "healthy")?;
    plain(&mut browser)?;
    keyboard(&mut browser, secret.trim())?;
    // A store is lost: the page says so.
    drop(stores.remove(0));
    browser.wait("document.body.className !== 'good'")?;
    browser
        .wait("[...document.querySelectorAll('#events li')].some((line) => line.textContent.includes(' is down'))")?;
    screens(&mut browser, &folder, "store-lost")?;
    if !browser.errors.is_empty() {
        return Err(format!("the page has errors: {}", browser.errors.join("; ")));
    }
    let outside = browser.asked.iter().find(|url| !url.starts_with(&page) && !url.starts_with("data:"));
    if let Some(outside) = outside {
        return Err(format!("the page asks {outside}"));
    }
    eprintln!("== {} requests, all to the console; screens in {}", browser.asked.len(), folder.display());
    Ok(())
}

/// A picture of each screen. Nothing is wider than the screen.
fn screens(browser: &mut Browser, folder: &Path, what: &str) -> Result<(), String> {
    for (name, width, height, dark) in SCREENS {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        browser.call("Emulation.setDeviceMetricsOverride", size)?;
        let scheme = json!([{ "name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" } }]);
        browser.call("Emulation.setEmulatedMedia", json!({ "features": scheme }))?;
        // The charts have the width of their places.
        browser.wait(
            "[...document.querySelectorAll('.chart')].every((it) => \
             Math.abs(it.querySelector('canvas').clientWidth - it.clientWidth) < 3)",
        )?;
        let wide = browser.value("document.documentElement.scrollWidth - innerWidth")?;
        if wide.as_i64() > Some(0) {
            return Err(format!("on the {name} the page is {wide} pixels too wide"));
        }
        let shot = browser.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }))?;
        let bytes = decoded(shot["data"].as_str().unwrap_or_default());
        let path = folder.join(format!("{what}-{name}.png"));
        fs::write(&path, bytes).map_err(|why| format!("{}: {why}", path.display()))?;
    }
    let usual = json!({ "width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": false });
    browser.call("Emulation.setDeviceMetricsOverride", usual).map(drop)
}

/// Names, landmarks and a language, for those who do not see the page.
fn plain(browser: &mut Browser) -> Result<(), String> {
    for rule in [
        "document.documentElement.lang === 'en' && document.title.length > 0",
        "['header', 'main', 'footer', 'h1'].every((it) => document.querySelectorAll(it).length === 1)",
        "[...document.querySelectorAll('section')].every((it) => \
         document.getElementById(it.getAttribute('aria-labelledby'))?.textContent)",
        "[...document.querySelectorAll('input')].every((it) => it.labels.length === 1)",
        "[...document.querySelectorAll('button')].every((it) => it.getAttribute('aria-label') || it.textContent)",
        "[...document.querySelectorAll('#main section > div:not(.chart) th')].every((it) => it.scope)",
        "document.querySelectorAll('#targets table').length >= 7 && document.querySelectorAll('.uplot').length === 3",
        "[...document.querySelectorAll('#targets summary')].some((it) => it.textContent.startsWith('rack1: 3'))",
        "!document.querySelector('#pause') && !document.querySelector('[id^=drain]')",
    ] {
        if browser.value(rule)? != true {
            return Err(format!("not so: {rule}"));
        }
    }
    Ok(())
}

/// Everything without a mouse: to the content, a login, an action that is thought better of, and
/// one that is done.
fn keyboard(browser: &mut Browser, secret: &str) -> Result<(), String> {
    browser.press("Tab")?;
    browser.wait("document.activeElement.className === 'skip'")?;
    browser.tab_to("key")?;
    browser.type_text(secret)?;
    browser.press("Enter")?;
    browser.wait("!document.querySelector('#logout').hidden && document.querySelector('#pause') !== null")?;
    browser.tab_to("drain-0")?;
    browser.press("Enter")?;
    browser.wait("document.querySelector('#ask').open")?;
    browser.press("Escape")?;
    browser.wait("!document.querySelector('#ask').open")?;
    browser.value("document.querySelector('header').focus(), document.activeElement.blur()")?;
    browser.tab_to("pause")?;
    browser.press("Enter")?;
    browser.wait("document.querySelector('#ask').open")?;
    browser.tab_to("yes")?;
    browser.press("Enter")?;
    let has = |text: &str| {
        format!("[...document.querySelectorAll('#events li')].some((it) => it.textContent.includes('{text}'))")
    };
    browser.wait(&has("pause rebalancing: done"))?;
    if browser.value(&has("drain"))? == true {
        return Err("an action was carried out that was cancelled".into());
    }
    Ok(())
}

/// Bytes from base64.
fn decoded(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut bits, mut filled) = (Vec::with_capacity(text.len()), 0u32, 0);
    for six in text.bytes().filter_map(value) {
        bits = bits << 6 | u32::from(six);
        filled += 6;
        if filled >= 8 {
            filled -= 8;
            bytes.push((bits >> filled) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    #[test]
    fn pictures_are_decoded() {
        assert_eq!(super::decoded("aGVsbG8="), b"hello");
        assert_eq!(super::decoded("/+8="), [0xff, 0xef]);
    }
}
