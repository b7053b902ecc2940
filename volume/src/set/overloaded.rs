//! Which data blocks a read does not ask for, because their targets have too much to do.

use super::layout::SetLayout;
use crate::targets::Targets;
use plan::TargetId;
use plan::late::{OVERLOADED_BY, is_overloaded};
use plan::stripe::Part;

/// The blocks of these parts that are not asked for, as they take much longer than k others: their
/// targets are overloaded. None where others are missing, and too few are left to decode.
pub(super) fn overloaded(targets: &Targets, layout: &SetLayout, parts: &[Part]) -> Vec<usize> {
    let mut left_out = Vec::new();
    let is_suspect = |part: &Part| {
        let usual = layout.places[part.block].and_then(|id| targets.usual_read(id));
        usual.is_some_and(|usual| usual >= OVERLOADED_BY)
    };
    // Nearly always that is all there is to it.
    if !parts.iter().any(is_suspect) || !layout.code.systematic() {
        return left_out;
    }
    let meters: Vec<_> = layout.places.iter().map(|id| targets.meter((*id)?)).collect();
    let usual = |position: usize| meters[position].as_ref()?.usual_read();
    let is_overloaded = |position: usize| {
        let others = (0..meters.len()).filter(|&other| other != position).filter_map(usual);
        usual(position).is_some_and(|own| is_overloaded(own, &mut others.collect::<Vec<_>>()))
    };
    let is_cool = |position: &usize| {
        let sound = |id: TargetId| targets.error(id).is_none() && !targets.is_slow(id);
        meters[*position].is_some() && layout.places[*position].is_some_and(sound) && !is_overloaded(*position)
    };
    let cool: Vec<usize> = (0..meters.len()).filter(is_cool).collect();
    for position in parts.iter().map(|part| part.block).filter(|&position| is_overloaded(position)) {
        let wanted: Vec<usize> = left_out.iter().copied().chain([position]).collect();
        let may_be = meters[position].as_ref().is_some_and(|meter| meter.may_leave_out());
        if may_be && layout.code.repair(&wanted, &cool).is_ok() {
            left_out.push(position);
        }
    }
    left_out
}
