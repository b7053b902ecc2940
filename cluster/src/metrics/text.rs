//! The text format of Prometheus (0.0.4): families of samples with labels. There are no side
//! effects; numbers are written as given.

use std::fmt::Write;
use std::time::Duration;
use volume::counts::{BOUNDS, Distribution};

/// The content type of the page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A label's name and value.
pub type Label<'a> = (&'a str, &'a str);

/// A page of metrics under construction.
#[derive(Debug, Default)]
pub struct Page {
    /// The name and the lines of each metric: a metric of several volumes is on the page once.
    families: Vec<(String, String)>,
    volume: Option<String>,
}

/// The samples of one metric.
pub struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
    volume: Option<&'a str>,
}

impl Page {
    /// A metric that only grows. The name ends in `_total`.
    pub fn counter<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        debug_assert!(name.ends_with("_total"), "{name}");
        self.family(name, help, "counter")
    }

    /// A metric that rises and falls.
    pub fn gauge<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        debug_assert!(!name.ends_with("_total"), "{name}");
        self.family(name, help, "gauge")
    }

    /// A distribution of times. The name ends in `_seconds`.
    pub fn histogram<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        debug_assert!(name.ends_with("_seconds"), "{name}");
        self.family(name, help, "histogram")
    }

    /// Samples that follow are of this volume, and have its name as a label; with None they are of
    /// the process.
    pub fn set_volume(&mut self, volume: Option<&str>) {
        self.volume = volume.map(str::to_owned);
    }

    fn family<'a>(&'a mut self, name: &'a str, help: &str, kind: &str) -> Family<'a> {
        let known = self.families.iter().position(|(known, _)| known == name);
        let number = known.unwrap_or_else(|| {
            self.families.push((name.to_owned(), format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")));
            self.families.len() - 1
        });
        Family { text: &mut self.families[number].1, name, volume: self.volume.as_deref() }
    }

    /// Returns the text.
    pub fn finish(self) -> String {
        self.families.into_iter().map(|(_, text)| text).collect()
    }
}

impl Family<'_> {
    /// Adds an integer sample.
    pub fn count(&mut self, labels: &[Label<'_>], value: u64) -> &mut Self {
        self.sample("", labels, None, value)
    }

    /// Adds a sample that may be a fraction.
    pub fn value(&mut self, labels: &[Label<'_>], value: f64) -> &mut Self {
        self.sample("", labels, None, value)
    }

    /// Adds a sample for a time, in seconds.
    pub fn seconds(&mut self, labels: &[Label<'_>], time: Duration) -> &mut Self {
        self.value(labels, time.as_secs_f64())
    }

    /// Adds the buckets of a distribution of times.
    pub fn times(&mut self, labels: &[Label<'_>], times: &Distribution) -> &mut Self {
        let mut below = 0;
        for (bound, count) in BOUNDS.iter().zip(times.buckets) {
            below += count;
            self.sample("_bucket", labels, Some(&bound.as_secs_f64().to_string()), below);
        }
        self.sample("_bucket", labels, Some("+Inf"), times.count());
        self.sample("_sum", labels, None, times.sum.as_secs_f64());
        self.sample("_count", labels, None, times.count())
    }

    fn sample(
        &mut self,
        ending: &str,
        labels: &[Label<'_>],
        bound: Option<&str>,
        value: impl std::fmt::Display,
    ) -> &mut Self {
        let page = &mut *self.text;
        page.push_str(self.name);
        page.push_str(ending);
        let volume = self.volume.map(|volume| ("volume", volume));
        let all = volume.into_iter().chain(labels.iter().copied()).chain(bound.map(|bound| ("le", bound)));
        for (number, (name, value)) in all.enumerate() {
            page.push(if number == 0 { '{' } else { ',' });
            let _ = write!(page, "{name}=\"");
            for c in value.chars() {
                match c {
                    '\\' => page.push_str(r"\\"),
                    '"' => page.push_str("\\\""),
                    '\n' => page.push_str("\\n"),
                    c => page.push(c),
                }
            }
            page.push('"');
        }
        if self.volume.is_some() || !labels.is_empty() || bound.is_some() {
            page.push('}');
        }
        let _ = writeln!(page, " {value}");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use volume::counts::Histogram;

    #[test]
    fn a_page_is_what_prometheus_reads() {
        let mut page = Page::default();
        page.counter("weft_x_total", "Xs.").count(&[], 3).count(&[("kind", "a\"b\\c\nd")], u64::MAX);
        page.gauge("weft_y_bytes", "Ys.").value(&[("a", "1"), ("b", "2")], 0.25);
        let expected = "# HELP weft_x_total Xs.\n# TYPE weft_x_total counter\nweft_x_total 3\n\
            weft_x_total{kind=\"a\\\"b\\\\c\\nd\"} 18446744073709551615\n\
            # HELP weft_y_bytes Ys.\n# TYPE weft_y_bytes gauge\nweft_y_bytes{a=\"1\",b=\"2\"} 0.25\n";
        assert_eq!(page.finish(), expected);
    }

    /// Prometheus refuses a page that has a metric twice.
    #[test]
    fn a_metric_of_several_volumes_is_on_the_page_once() {
        let mut page = Page::default();
        page.gauge("weft_process", "One.").count(&[], 1);
        for volume in ["films", "mails"] {
            page.set_volume(Some(volume));
            page.gauge("weft_y_bytes", "Ys.").count(&[], 2);
            page.gauge("weft_z_bytes", "Zs.").count(&[("a", "1")], 3);
        }
        let expected = "# HELP weft_process One.\n# TYPE weft_process gauge\nweft_process 1\n\
            # HELP weft_y_bytes Ys.\n# TYPE weft_y_bytes gauge\nweft_y_bytes{volume=\"films\"} 2\n\
            weft_y_bytes{volume=\"mails\"} 2\n\
            # HELP weft_z_bytes Zs.\n# TYPE weft_z_bytes gauge\nweft_z_bytes{volume=\"films\",a=\"1\"} 3\n\
            weft_z_bytes{volume=\"mails\",a=\"1\"} 3\n";
        assert_eq!(page.finish(), expected);
    }

    #[test]
    fn buckets_of_a_histogram_count_all_below() {
        let histogram = Histogram::default();
        for micros in [10, 10, 60, 400, 60_000_000] {
            histogram.note(Duration::from_micros(micros));
        }
        let mut page = Page::default();
        page.histogram("weft_z_seconds", "Zs.").times(&[("of", "z")], &histogram.now());
        let text = page.finish();
        for line in [
            "weft_z_seconds_bucket{of=\"z\",le=\"0.00005\"} 2\n",
            "weft_z_seconds_bucket{of=\"z\",le=\"0.0001\"} 3\n",
            "weft_z_seconds_bucket{of=\"z\",le=\"0.0005\"} 4\n",
            "weft_z_seconds_bucket{of=\"z\",le=\"30\"} 4\n",
            "weft_z_seconds_bucket{of=\"z\",le=\"+Inf\"} 5\n",
            "weft_z_seconds_count{of=\"z\"} 5\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
