//! The experiments of the five documents, and the commands that repeat them.

/// A document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Paper {
    /// "Cost analysis of erasure coding for exa-scale storage": what a write costs, step by step
    Exstorus,
    /// "Parallel Erasure Coding": the archive encoder, its tasks and schedules
    Parec,
    /// "Wrong assumptions about disperse": the speed of the code of Gluster's volumes
    Gluster,
    /// "Write bandwidth optimization of online Erasure Code based cluster file system"
    Ecfs,
    /// "An Empirical Study of Performance, Power Consumption, and Energy Cost of Erasure Code
    /// Computing"
    Energy,
}

/// Something that a document measured, and a command that repeats it.
#[derive(Debug)]
pub struct Experiment {
    pub paper: Paper,
    /// Figures and tables, as [`Self::has`] takes them.
    pub figures: &'static [&'static str],
    pub shows: &'static str,
    /// A figure of the same document, if its measurement gives the constants of this prediction.
    pub constants_of: Option<&'static str>,
    /// The command, without `weft`.
    pub command: &'static [&'static str],
    /// What makes it as large as the document's.
    pub full: &'static [&'static str],
    /// What makes it as short as can be.
    pub quick: &'static [&'static str],
    /// The options that name a file, and its ending.
    pub files: &'static [(&'static str, &'static str)],
    /// Whether it takes `--dir`.
    pub has_dir: bool,
    /// How this machine's experiment differs from the document's.
    pub differs: &'static str,
}

const FILES: &[(&str, &str)] = &[("--json-file", "json"), ("--html", "html"), ("--csv", "csv")];
const STREAM_FILES: &[(&str, &str)] = &[("--json-file", "json"), ("--html", "html"), ("--stream-csv", "csv")];
const QUICK: &[&str] = &["--quick"];

/// All of them.
pub const ALL: &[Experiment] = &[
    Experiment {
        paper: Paper::Exstorus,
        figures: &["4", "5"],
        shows: "one thread: throughput and processor use by code, beside NONE",
        constants_of: None,
        command: &[
            "bench",
            "write-cost",
            "--only-streams",
            "--threads",
            "1",
            "--coding",
            "server",
            "--master",
            "1",
            "--stripe-bytes",
            "6k",
        ],
        full: &["--net", "10G", "--stream-bytes", "5G"],
        quick: QUICK,
        files: STREAM_FILES,
        has_dir: true,
        differs: "all servers share this machine's processors; --full is behind links of 10G, as root",
    },
    Experiment {
        paper: Paper::Exstorus,
        figures: &["6", "7"],
        shows: "ten threads: throughput and processor use by code, beside NONE",
        constants_of: None,
        command: &[
            "bench",
            "write-cost",
            "--only-streams",
            "--threads",
            "10",
            "--channels",
            "10",
            "--coding",
            "server",
            "--master",
            "1",
            "--stripe-bytes",
            "6k",
        ],
        full: &["--net", "10G", "--stream-bytes", "50G"],
        quick: QUICK,
        files: STREAM_FILES,
        has_dir: true,
        differs: "all servers share this machine's processors; --full is behind links of 10G, as root",
    },
    Experiment {
        paper: Paper::Exstorus,
        figures: &["table 1", "table 2", "table 3", "9", "10", "11", "12", "13", "14"],
        shows: "the five steps of a record of 4 to 128 KiB at 1G, 10G and 40G",
        constants_of: None,
        command: &[
            "bench",
            "write-cost",
            "--coding",
            "server",
            "--master",
            "1",
            "--stripe-bytes",
            "6k",
            "--records",
            "4k,8k,16k,32k,64k,128k",
            "--net",
            "1G,10G,40G",
        ],
        full: &["--count", "50000", "--rounds", "10"],
        quick: QUICK,
        files: FILES,
        has_dir: true,
        differs: "each record is synced; links are limited in namespaces (root), and 40G cannot be had on one machine",
    },
    Experiment {
        paper: Paper::Exstorus,
        figures: &["15", "16"],
        shows: "the steps predicted for 100G, by the constants of this machine",
        constants_of: Some("table 1"),
        command: &["model", "predict", "--net", "100G", "--record", "128k", "--coding", "server", "--paper"],
        full: &[],
        quick: &[],
        files: FILES,
        has_dir: false,
        differs: "constants are measured before, as in figures 9 to 14; bandwidths beyond this machine's are predicted",
    },
    Experiment {
        paper: Paper::Exstorus,
        figures: &["channels"],
        shows: "ten threads: throughput by the number of connections to each store; the study has ten",
        constants_of: None,
        command: &["bench", "channels"],
        full: &["--net", "10G", "--stream-bytes", "50G"],
        quick: QUICK,
        files: FILES,
        has_dir: true,
        differs: "no other number is published; all servers share this machine's processors",
    },
    Experiment {
        paper: Paper::Parec,
        figures: &["2", "3", "4", "5", "6", "7", "table 1"],
        shows: "a file in parts, and many objects under both schedules: time, energy, utilization",
        constants_of: None,
        command: &["bench", "archive", "--paper"],
        full: &["--bytes", "40GiB"],
        quick: QUICK,
        files: FILES,
        has_dir: true,
        differs: "sizes are scaled to this machine; energy is modelled where it has no instrument",
    },
    Experiment {
        paper: Paper::Gluster,
        figures: &["table 1", "table 2"],
        shows: "MiB/s of the dispersed code, nine shapes, 128 KiB at a time",
        constants_of: None,
        command: &["bench", "codes", "--section", "table"],
        full: &[],
        quick: QUICK,
        files: FILES,
        has_dir: false,
        differs: "a newer processor; column 2016 plain is table 1, --kernel plain has Weft without SIMD, too",
    },
    Experiment {
        paper: Paper::Ecfs,
        figures: &["2", "7"],
        shows: "write bandwidth by nodes: conventional, partition encoding with overlap, stripes in flight",
        constants_of: None,
        command: &["bench", "overlap"],
        full: &["--nodes", "6,8", "--block-bytes", "32M", "--seconds", "15", "--rounds", "5"],
        quick: QUICK,
        files: FILES,
        has_dir: true,
        differs: "nodes are processes that share this machine's processors; 24 nodes and more are modelled",
    },
    Experiment {
        paper: Paper::Ecfs,
        figures: &["directories"],
        shows: "large directories: names in an ordered map, beside an extendible hash as in the paper",
        constants_of: None,
        command: &["bench", "directories"],
        full: &["--entries", "10k,1M,10M"],
        quick: QUICK,
        files: FILES,
        has_dir: true,
        differs: "the paper has no figure; the extendible hash is a prototype, in memory",
    },
    Experiment {
        paper: Paper::Ecfs,
        figures: &["6"],
        shows: "encoding by the size of regions, 64 KiB to 64 MiB, five shapes",
        constants_of: None,
        command: &["bench", "codes", "--section", "regions"],
        full: &[],
        quick: QUICK,
        files: FILES,
        has_dir: false,
        differs: "a region covers all parities in one pass",
    },
    Experiment {
        paper: Paper::Ecfs,
        figures: &["8", "9", "10", "11"],
        shows: "write bandwidth and space by placement policy, simulated with 8 to 1024 servers",
        constants_of: None,
        command: &["bench", "placement", "--simulated"],
        full: &["--seeds", "20"],
        quick: QUICK,
        files: FILES,
        has_dir: false,
        differs: "a model: what the paper does not say of its disks and nodes is assumed",
    },
    Experiment {
        paper: Paper::Ecfs,
        figures: &["8", "9", "10", "11"],
        shows: "write bandwidth and space by placement policy, balanced and unbalanced load, with processes",
        constants_of: None,
        command: &["bench", "placement"],
        full: &["--seconds", "15", "--rounds", "5"],
        quick: QUICK,
        files: FILES,
        has_dir: true,
        differs: "eight stores on one machine, each held to the same speed, and two of them slowed",
    },
    Experiment {
        paper: Paper::Energy,
        figures: &[
            "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "table 2", "table 3", "table 4", "2A", "2B", "3A",
            "3B", "4A", "4B", "5A", "5B", "6A", "6B",
        ],
        shows: "seven methods at 160+80, 160+40 and 160+32 as jobs: time, bandwidth, energy, shares, three years",
        constants_of: None,
        command: &["bench", "energy"],
        full: &["--bytes", "40GB"],
        quick: QUICK,
        files: FILES,
        has_dir: true,
        differs: "a newer processor; energy is modelled where there is no instrument; several devices with --from",
    },
];

impl Experiment {
    /// Whether a figure or a table is of this experiment: `4`, `fig. 4`, `table 1`, `t1`.
    pub fn has(&self, figure: &str) -> bool {
        let figure = figure.trim().to_lowercase();
        let bare =
            ["figure", "fig.", "fig"].iter().find_map(|word| figure.strip_prefix(word)).unwrap_or(&figure).trim();
        let table =
            bare.strip_prefix("table").or(bare.strip_prefix('t')).map(|number| format!("table {}", number.trim()));
        let wanted = table.as_deref().unwrap_or(bare);
        self.figures.iter().any(|own| own.eq_ignore_ascii_case(wanted))
    }

    /// The experiment whose measurement gives the constants of this prediction.
    pub fn measurement(&self) -> Option<&'static Self> {
        let figure = self.constants_of?;
        ALL.iter().find(|other| other.paper == self.paper && other.has(figure))
    }

    /// What its files are called, without the ending.
    pub fn file_name(&self) -> String {
        let first = self.figures[0].replace(' ', "-");
        let how = if self.is_simulated() { "-simulated" } else { "" };
        format!("{}-{first}{how}", self.paper.name())
    }

    fn is_simulated(&self) -> bool {
        self.command.contains(&"--simulated")
    }

    /// Its figures in words.
    pub fn all_figures(&self) -> String {
        self.figures.join(", ")
    }
}

impl Paper {
    pub fn name(self) -> &'static str {
        match self {
            Self::Exstorus => "exstorus",
            Self::Parec => "parec",
            Self::Gluster => "gluster",
            Self::Ecfs => "ecfs",
            Self::Energy => "energy",
        }
    }

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Exstorus => "Cost analysis of erasure coding for exa-scale storage",
            Self::Parec => {
                "Parallel Erasure Coding: Exploring Task Parallelism in Erasure Coding for Enhanced Bandwidth and \
                 Energy Efficiency"
            }
            Self::Gluster => "Wrong assumptions about disperse",
            Self::Ecfs => "Write bandwidth optimization of online Erasure Code based cluster file system",
            Self::Energy => {
                "An Empirical Study of Performance, Power Consumption, and Energy Cost of Erasure Code Computing for \
                 HPC Cloud Storage Systems"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_many_spellings() {
        let of = |paper, figure: &str| ALL.iter().filter(|it| it.paper == paper && it.has(figure)).count();
        for figure in ["4", "fig. 4", "Fig 4", "figure 4", "14", "table 1", "Table 3", "t2"] {
            assert_eq!(of(Paper::Exstorus, figure), 1, "{figure}");
        }
        for figure in ["", "1", "table", "table 4", "fig", "44"] {
            assert_eq!(of(Paper::Exstorus, figure), 0, "{figure}");
        }
        assert_eq!((of(Paper::Energy, "3a"), of(Paper::Gluster, "t1"), of(Paper::Ecfs, "11")), (1, 1, 2));
    }

    /// No two write the same file, no figure is repeated twice, and every command is understood.
    #[test]
    fn each_is_a_command_of_weft() {
        let mut names: Vec<String> = ALL.iter().map(Experiment::file_name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        for experiment in ALL {
            let figures = experiment.figures.iter();
            assert!(figures.clone().all(|figure| {
                let same = |other: &&Experiment| {
                    other.paper == experiment.paper && other.is_simulated() == experiment.is_simulated()
                };
                ALL.iter().filter(same).filter(|other| other.has(figure)).count() == 1
            }));
            // What a reader plots, pipes and looks at.
            for ending in ["json", "csv", "html"] {
                assert_eq!(experiment.files.iter().filter(|file| file.1 == ending).count(), 1, "{ending}");
            }
            assert_eq!(experiment.measurement().is_some(), experiment.constants_of.is_some());
            for more in [experiment.full, experiment.quick] {
                let mut words = vec!["weft"];
                words.extend(experiment.command.iter().chain(more));
                experiment.files.iter().for_each(|(option, _)| words.extend([option, "x"]));
                words.extend(if experiment.has_dir { &["--dir", "x"][..] } else { &[] });
                let parsed = crate::commands().try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
            }
        }
    }
}
