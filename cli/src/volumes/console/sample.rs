//! A point of the history, from two looks at a volume and at metrics.

use super::history::Point;
use super::metrics::{Values, sum};
use serde_json::Value;

/// What was seen at a time (seconds since 1970).
#[derive(Clone, Default)]
pub struct Look {
    pub t: f64,
    pub status: Value,
    pub metrics: Values,
}

impl Look {
    fn metric(&self, name: &str, label: &str) -> Option<f64> {
        sum(&self.metrics, name, label)
    }
}

/// The increase of a counter per second. One that went back was started again.
fn rate(before: Option<f64>, after: Option<f64>, seconds: f64) -> Option<f64> {
    let more = after? - before?;
    (seconds > 0.0 && more >= 0.0).then(|| more / seconds)
}

/// The mean of what a list has under a key; None if it has nothing.
fn mean(list: &Value, of: impl Fn(&Value) -> Option<f64>) -> Option<f64> {
    let all: Vec<f64> = list.as_array()?.iter().filter_map(of).collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

fn total(list: &Value, key: &str) -> Option<f64> {
    let all: Vec<f64> = list.as_array()?.iter().filter_map(|one| one[key].as_f64()).collect();
    (!all.is_empty()).then(|| all.iter().sum())
}

/// The point of the later of two looks.
pub fn point(before: &Look, after: &Look) -> Point {
    let seconds = after.t - before.t;
    let status = &after.status;
    let bytes = |operation: &str| {
        let label = format!("operation=\"{operation}\"");
        let of = |look: &Look| look.metric("weft_file_bytes_total", &label);
        rate(of(before), of(after), seconds)
    };
    let time = |operation: &str| {
        let label = format!("operation=\"{operation}\"");
        let of = |look: &Look, ending: &str| look.metric(&format!("weft_file_operation_seconds_{ending}"), &label);
        let count = of(after, "count")? - of(before, "count")?;
        let time = of(after, "sum")? - of(before, "sum")?;
        (count > 0.0 && time >= 0.0).then(|| time / count * 1e3)
    };
    let space = |key: &str| status[key].as_f64();
    let moved = status["rebalance"]["bytes_per_second"].as_f64().unwrap_or(0.0);
    Point {
        t: after.t as u64,
        used: space("total").zip(space("free")).map(|(total, free)| total - free),
        total: space("total"),
        network: total(&status["stores"], "network_bytes_per_second"),
        read: bytes("read"),
        written: bytes("write"),
        delay: mean(&status["targets"], |target| target["load"]["delay"].as_f64()).map(|delay| delay * 1e3),
        read_ms: time("read"),
        write_ms: time("write"),
        repair: Some(total(&status["repairs"], "bytes_per_second").unwrap_or(0.0) + moved),
    }
}

/// Where the time of writes went since the processes began: seconds and count of each step. From
/// the volume's own account, or from the metrics of mounts.
pub fn write_cost(look: &Look) -> Value {
    let own = &look.status["write_cost"];
    if own["writes"].as_u64() > Some(0) {
        return own["steps"].clone();
    }
    let named = own["steps"].as_array().cloned().unwrap_or_default();
    let steps = named.into_iter().map(|mut step| {
        let label = format!("step=\"{}\"", step["step"].as_str().unwrap_or_default());
        step["seconds"] = look.metric("weft_write_step_seconds_total", &label).into();
        step["count"] = look.metric("weft_write_steps_total", &label).into();
        step
    });
    let steps: Vec<Value> = steps.collect();
    // A metadata server alone counts its own part of writes of others: that is no whole write.
    let is_whole = steps.iter().any(|step| step["code"] == "PC" && step["count"].as_f64() > Some(0.0));
    if is_whole { steps.into() } else { Value::Array(Vec::new()) }
}

/// The clients that have a session, if metrics of a metadata server tell.
pub fn clients(look: &Look) -> Option<f64> {
    look.metric("weft_meta_clients", "")
}

#[cfg(test)]
mod tests {
    use super::super::metrics::read;
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_are_of_two_looks() {
        let status = json!({
            "total": 100, "free": 40, "rebalance": { "bytes_per_second": 5 }, "repairs": [{ "bytes_per_second": 7 }],
            "stores": [{ "network_bytes_per_second": 1.5 }, { "network_bytes_per_second": 2.5 }],
            "targets": [{ "load": { "delay": 0.002 } }, { "load": null }, { "load": { "delay": 0.004 } }],
        });
        let metrics = |bytes: u32, count: u32, sum: f64| {
            read(&format!(
                "weft_file_bytes_total{{operation=\"read\"}} {bytes}\n\
                 weft_file_operation_seconds_count{{operation=\"read\"}} {count}\n\
                 weft_file_operation_seconds_sum{{operation=\"read\"}} {sum}\nweft_meta_clients 3\n"
            ))
        };
        let before = Look { t: 10.0, status: status.clone(), metrics: metrics(100, 1, 0.5) };
        let after = Look { t: 12.0, status, metrics: metrics(300, 5, 0.9) };
        let point = point(&before, &after);
        assert_eq!((point.t, point.used, point.network), (12, Some(60.0), Some(4.0)));
        assert_eq!((point.read, point.written, point.repair), (Some(100.0), None, Some(12.0)));
        assert!((point.delay.unwrap() - 3.0).abs() < 1e-9 && (point.read_ms.unwrap() - 100.0).abs() < 1e-6);
        assert_eq!(clients(&after), Some(3.0));
        // The metadata server's own part is no write; a mount's is.
        let steps = json!({ "writes": 0, "steps": [{ "step": "parity_calculation", "code": "PC" }] });
        let mut look = Look { status: json!({ "write_cost": steps }), ..Look::default() };
        assert_eq!(write_cost(&look), json!([]));
        look.metrics = read(
            "weft_write_steps_total{step=\"parity_calculation\"} 3\n\
             weft_write_step_seconds_total{step=\"parity_calculation\"} 0.5\n",
        );
        assert_eq!(write_cost(&look)[0]["seconds"], 0.5);
        // A process that was started again counts from nothing.
        assert_eq!(super::point(&after, &before).read, None);
    }
}
