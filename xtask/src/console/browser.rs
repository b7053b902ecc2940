//! A headless Chromium, told what to do over pipes (the DevTools protocol).

use crate::NOT_HERE;
use crate::peers::run;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A page that does not get there in this time never does.
const LIMIT: Duration = Duration::from_secs(60);

pub struct Browser {
    child: Child,
    commands: File,
    messages: Receiver<Value>,
    number: u64,
    session: String,
    /// Errors of the page, and addresses that it asked.
    pub errors: Vec<String>,
    pub asked: Vec<String>,
}

impl Browser {
    /// Starts one, with its files in a folder.
    pub fn start(folder: &Path) -> Result<Self, String> {
        let program = ["chromium", "chromium-browser", "google-chrome"];
        let program = program.into_iter().find(|name| run(Command::new(name).arg("--version")).is_ok());
        let program = program.ok_or(format!("{NOT_HERE}: there is no chromium (Debian: chromium)"))?;
        let pipe = |name: &str| {
            let path = folder.join(name);
            let _ = fs::remove_file(&path);
            run(Command::new("mkfifo").arg(&path)).map(|()| path)
        };
        let (down, up) = (pipe("down")?, pipe("up")?);
        // The browser reads descriptor 3 and writes to 4.
        let script = "exec \"$0\" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
            --disable-background-networking --hide-scrollbars --remote-debugging-pipe --user-data-dir=\"$3\" \
            3<\"$1\" 4>\"$2\"";
        let child = Command::new("sh")
            .args(["-c", script, program])
            .args([&down, &up, &folder.join("profile")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|why| format!("sh: {why}"))?;
        let opened =
            |path: &Path, file: std::io::Result<File>| file.map_err(|why| format!("{}: {why}", path.display()));
        let commands = opened(&down, File::options().write(true).open(&down))?;
        let answers = opened(&up, File::open(&up))?;
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(answers).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (errors, asked) = Default::default();
        let mut browser = Self { child, commands, messages, number: 0, session: String::new(), errors, asked };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach)?;
        browser.session = attached["sessionId"].as_str().ok_or("the browser attaches to no page")?.into();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method, and notes what else the page says meanwhile.
    pub fn call(&mut self, method: &str, parameters: Value) -> Result<Value, String> {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).map_err(|why| format!("the browser: {why}"))?;
        loop {
            let message = self.messages.recv_timeout(LIMIT).map_err(|_| format!("{method}: no answer"))?;
            if message["id"] == self.number {
                return match message.get("error") {
                    Some(why) => Err(format!("{method}: {why}")),
                    None => Ok(message["result"].clone()),
                };
            }
            self.note(&message);
        }
    }

    fn note(&mut self, message: &Value) {
        let said = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.errors.push(said["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") if said["type"] == "error" => self.errors.push(said["args"].to_string()),
            Some("Log.entryAdded") if said["entry"]["level"] == "error" => self.errors.push(said["entry"].to_string()),
            Some("Network.requestWillBeSent") => {
                self.asked.extend(said["request"]["url"].as_str().map(str::to_owned));
            }
            _ => {}
        }
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Result<Value, String> {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", parameters)?;
        match answer.get("exceptionDetails") {
            Some(why) => Err(format!("{expression}: {why}")),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Waits until an expression is true.
    pub fn wait(&mut self, expression: &str) -> Result<(), String> {
        let begun = Instant::now();
        while self.value(expression)? != true {
            if begun.elapsed() > LIMIT {
                let page = self.value("document.body.innerText")?;
                return Err(format!("it never becomes true: {expression}; the page says {page}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) -> Result<(), String> {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            " " => (32, " "),
            _ => (0, key),
        };
        let down = json!({ "type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
        self.call("Input.dispatchKeyEvent", down)?;
        let up = json!({ "type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", up).map(drop)
    }

    /// Types a text.
    pub fn type_text(&mut self, text: &str) -> Result<(), String> {
        self.call("Input.insertText", json!({ "text": text })).map(drop)
    }

    /// Presses Tab until an element with that id has the focus.
    pub fn tab_to(&mut self, id: &str) -> Result<(), String> {
        for _ in 0..200 {
            self.press("Tab")?;
            if self.value("document.activeElement.id")? == id {
                return Ok(());
            }
        }
        Err(format!("no Tab leads to {id}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
