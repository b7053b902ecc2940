//! The service Node: makes volumes appear in the directories of pods.

use crate::driver::{Driver, given, is_read_only, supported};
use crate::messages::{
    Kind, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodeInfo, NodePublishVolumeRequest,
    NodeUnpublishVolumeRequest, Nothing, ServiceCapabilities, ServiceCapability, VolumeUsage,
};
use crate::mounts;
use crate::volumes::is_at;
use rustix::fs::statvfs;
use std::path::Path;
use tonic::Status;

/// GET_VOLUME_STATS, SINGLE_NODE_MULTI_WRITER.
const CAPABILITIES: [i32; 2] = [2, 5];
const BYTES: i32 = 1;
const INODES: i32 = 2;

pub fn capabilities(_: &Driver, _: Nothing) -> Result<ServiceCapabilities, Status> {
    let capabilities = CAPABILITIES.map(|kind| ServiceCapability { rpc: Some(Kind { kind }) });
    Ok(ServiceCapabilities { capabilities: capabilities.into() })
}

pub fn info(driver: &Driver, _: Nothing) -> Result<NodeInfo, Status> {
    Ok(NodeInfo { node_id: driver.node.clone(), max_volumes_per_node: 0 })
}

pub fn publish(driver: &Driver, asked: NodePublishVolumeRequest) -> Result<Nothing, Status> {
    let id = given(&asked.volume_id, "the volume's id")?;
    let target = Path::new(given(&asked.target_path, "the target path")?);
    let capability = asked.volume_capability.as_slice();
    supported(capability)?;
    let read_only = asked.readonly || capability.iter().any(is_read_only);
    // This may wait for long, and must not keep a pod from its end.
    let source = driver.volumes()?.directory(id)?;
    let _claim = driver.claim(target)?;
    driver.mount.publish(&source, target, read_only)?;
    Ok(Nothing {})
}

/// The Weft volume need not be there.
pub fn unpublish(driver: &Driver, asked: NodeUnpublishVolumeRequest) -> Result<Nothing, Status> {
    given(&asked.volume_id, "the volume's id")?;
    let target = Path::new(given(&asked.target_path, "the target path")?);
    let _claim = driver.claim(target)?;
    mounts::unpublish(target)?;
    Ok(Nothing {})
}

/// Space is that of the Weft volume, which all volumes share.
pub fn stats(driver: &Driver, asked: NodeGetVolumeStatsRequest) -> Result<NodeGetVolumeStatsResponse, Status> {
    let id = given(&asked.volume_id, "the volume's id")?;
    let path = Path::new(given(&asked.volume_path, "the volume's path")?);
    let source = driver.volumes()?.directory(id)?;
    if !is_at(&source, path) {
        return Err(Status::not_found(format!("volume {id:?} is not at {}", path.display())));
    }
    let space = statvfs(path).map_err(|why| Status::internal(why.to_string()))?;
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let usage = |unit, each: u64, all: u64, free: u64, available: u64| VolumeUsage {
        available: number(available.saturating_mul(each)),
        total: number(all.saturating_mul(each)),
        used: number(all.saturating_sub(free).saturating_mul(each)),
        unit,
    };
    Ok(NodeGetVolumeStatsResponse {
        usage: vec![
            usage(BYTES, space.f_frsize, space.f_blocks, space.f_bfree, space.f_bavail),
            usage(INODES, 1, space.f_files, space.f_ffree, space.f_favail),
        ],
    })
}
