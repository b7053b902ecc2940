//! The interface of all instruments.

use plan::energy::Scope;
use std::time::Duration;

/// What a source reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// The power now.
    Watts(f64),
    /// The energy since a moment that stays the same.
    Joules(f64),
    /// New entries of a log since the last reading: seconds since 1970 and watts, in order.
    Log(Vec<(f64, f64)>),
}

/// An instrument.
pub trait Source: Send {
    /// Its short name.
    fn name(&self) -> &'static str;

    /// What exactly it reads.
    fn detail(&self) -> String;

    /// What it covers.
    fn scope(&self) -> Scope;

    /// Its error, as a share of the figure; None if it is unknown.
    fn error(&self) -> Option<f64>;

    /// The shortest useful interval between readings.
    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Reads the instrument at `now`, in seconds since 1970.
    ///
    /// # Errors
    /// One line: why there is no plausible figure, and what to do about it.
    fn read(&mut self, now: f64) -> Result<Reading, String>;
}

#[cfg(test)]
pub mod testing {
    //! Folders of recorded files.

    use std::io::Write;
    use std::path::PathBuf;

    /// A folder that is removed when the test ends.
    pub struct Scratch(PathBuf);

    impl Scratch {
        pub fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("weft-energy-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        pub fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        /// Creates a file with this content, and its folders.
        pub fn file(&self, name: &str, content: &str) -> PathBuf {
            let path = self.path(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, content).unwrap();
            path
        }

        pub fn append(&self, name: &str, content: &str) {
            let mut file = std::fs::OpenOptions::new().append(true).open(self.path(name)).unwrap();
            file.write_all(content.as_bytes()).unwrap();
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
