//! The real binary, as a user runs it: one module for each thing that users rely on.

mod archive;
mod damage;
mod energy;
mod few_targets;
mod forest;
mod hostile;
mod killed;
mod limits;
mod model;
mod mounts;
mod overwriting;
mod paper;
mod promptly;
mod recover;
mod recovery;
mod refusals;
mod round_trips;
mod scratch;
mod sharing;
mod simulation;
mod spellings;
mod starter;
mod tables;
mod torus;
mod unprotected;
mod volumes;
