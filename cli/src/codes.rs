//! `weft codes`: which codes there are, what each costs and survives, and how it runs here.

use crate::failure::{Failure, Outcome};
use crate::show;
use clap::Args;
use ec::{Code, Family};
use serde_json::{Value, json};

/// List the codes, or show one
#[derive(Args)]
#[command(after_help = "Examples:
  weft codes
  weft codes lrc:12+2+2
  weft codes crs:10+4 --program")]
pub struct Arguments {
    /// A code and its shape, such as rs:10+4
    spec: Option<String>,
    /// Print the XOR program that encodes it
    #[arg(long, requires = "spec")]
    program: bool,
}

pub fn run(arguments: &Arguments, as_json: bool) -> Outcome {
    match &arguments.spec {
        None if as_json => show::json(&json!({
            "kernel": chosen_kernel()?,
            "kernels": listed_kernels(),
            "codes": ec::catalogue().iter().map(family_document).collect::<Result<Vec<_>, _>>()?,
        })),
        None => table(),
        Some(spec) => {
            let code = ec::parse(spec)?;
            match arguments.program {
                true => program(&*code, as_json),
                false if as_json => show::json(&code_document(&*code)?),
                false => details(&*code),
            }
        }
    }
}

fn chosen_kernel() -> Result<&'static str, Failure> {
    gf::select::chosen().map(|kernel| kernel.name()).map_err(|error| Failure::Usage(error.to_string()))
}

fn listed_kernels() -> Vec<&'static str> {
    gf::select::listed().iter().map(|kernel| kernel.name()).collect()
}

/// Stored bytes for each byte of data.
fn overhead(code: &dyn Code) -> f64 {
    code.shape().blocks() as f64 / code.shape().k as f64
}

/// How many blocks a repair of that block reads, parts counted as such; `None` when it cannot be
/// repaired.
fn repair_reads(code: &dyn Code, lost: usize) -> Option<f64> {
    let have: Vec<usize> = (0..code.shape().blocks()).filter(|&position| position != lost).collect();
    let repair = code.repair(&[lost], &have).ok()?;
    Some(repair.reads().iter().map(|read| read.parts as f64 / read.of as f64).sum())
}

fn reads_in_words(reads: Option<f64>) -> String {
    reads.map_or("-".into(), |reads| if reads.fract() == 0.0 { format!("{reads}") } else { format!("{reads:.2}") })
}

const WIDTHS: [usize; 6] = [18, 22, 12, 6, 5, 27];

fn table() -> Outcome {
    let kernel = chosen_kernel()?;
    show::text(row(&["CODE", "SHAPES", "SURVIVES", "STORES", "READS", "SAME BYTES AS"].map(String::from)))?;
    for family in ec::catalogue() {
        let code = ec::parse(family.example)?;
        show::text(row(&[
            family.name.into(),
            family.shapes.into(),
            family.survives.into(),
            format!("{:.2}x", overhead(&*code)),
            reads_in_words(repair_reads(&*code, 0)),
            family.equals.into(),
        ]))?;
    }
    let (kernels, chosen) = (listed_kernels().join(", "), kernel);
    show::text(format_args!(
        "\nSTORES: bytes stored for each byte of data. READS: blocks read to repair one. Both are for the\n\
         code's usual shape, such as rs:4+2; `weft codes SPEC` shows any other.\n\
         Kernel: {chosen}; WEFT_KERNEL forces one of\n\
         {kernels}."
    ))
}

/// Cells side by side, each broken at spaces into lines of its column's width.
fn row(cells: &[String; 6]) -> String {
    let columns: Vec<Vec<String>> = cells.iter().zip(WIDTHS).map(|(cell, width)| broken(cell, width)).collect();
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    let line = |number: usize| {
        let cells = columns.iter().zip(WIDTHS).map(|(lines, width)| {
            let cell = lines.get(number).map_or("", String::as_str);
            format!("{cell:width$}  ")
        });
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..height).map(line).collect::<Vec<_>>().join("\n")
}

fn broken(cell: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in cell.split(' ') {
        let line = lines.last_mut().expect("there is a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!(" {word}"));
        }
    }
    lines
}

fn family_of(code: &dyn Code) -> Option<&'static Family> {
    ec::catalogue().iter().find(|family| family.name == code.spec().name)
}

fn details(code: &dyn Code) -> Outcome {
    let (shape, family) = (code.shape(), family_of(code));
    let title = family.map_or("", |family| family.title);
    show::text(format_args!("{}: {title}", code.spec()))?;
    show::text(format_args!("  blocks     {} data + {} parity", shape.k, shape.m))?;
    if !code.systematic() {
        show::text("  stored     coded blocks only; reading always decodes")?;
    }
    show::text(format_args!("  stores     {:.2}x the data", overhead(code)))?;
    show::text(format_args!(
        "  survives   any {}{}",
        if code.tolerates() == 1 { "1 loss".into() } else { format!("{} losses", code.tolerates()) },
        if code.tolerates() < shape.m { ", and some of more" } else { "" }
    ))?;
    if shape.m > 0 {
        let [data, parity] = [0, shape.blocks() - 1].map(|lost| reads_in_words(repair_reads(code, lost)));
        show::text(format_args!("  repair     of one block reads {data} blocks (the first), {parity} (the last)"))?;
    }
    show::text(format_args!("  unit       block lengths are multiples of {} bytes", code.unit()))?;
    show::text(format_args!(
        "  blocks of  {} by default",
        show::bytes(volume::object::default_block_bytes(code) as u64)
    ))?;
    if let Some(family) = family.filter(|family| family.equals != "-") {
        show::text(format_args!("  same as    {}", family.equals))?;
    }
    show::text(format_args!("  kernel     {}", chosen_kernel()?))
}

fn family_document(family: &Family) -> Result<Value, Failure> {
    let code = ec::parse(family.example)?;
    Ok(json!({
        "name": family.name,
        "title": family.title,
        "shapes": family.shapes,
        "survives": family.survives,
        "equals": family.equals,
        "example": code_document(&*code)?,
    }))
}

fn code_document(code: &dyn Code) -> Result<Value, Failure> {
    Ok(json!({
        "spec": code.spec().to_string(),
        "k": code.shape().k,
        "m": code.shape().m,
        "systematic": code.systematic(),
        "tolerates": code.tolerates(),
        "overhead": overhead(code),
        "unit_bytes": code.unit(),
        "default_block_bytes": volume::object::default_block_bytes(code),
        "repair_reads_blocks": (0..code.shape().blocks()).map(|lost| repair_reads(code, lost)).collect::<Vec<_>>(),
        "kernel": chosen_kernel()?,
    }))
}

fn program(code: &dyn Code, as_json: bool) -> Outcome {
    let Some(program) = code.program() else {
        return Err(Failure::Other(format!(
            "{} is computed by multiplication and has no XOR program; try crs:10+4",
            code.spec()
        )));
    };
    if as_json {
        show::json(
            &json!({ "spec": code.spec().to_string(), "program": format!("{program}").lines().collect::<Vec<_>>() }),
        )
    } else {
        show::text(format!("{program}").trim_end())
    }
}
