//! The service Controller: creates, deletes and lists volumes.

use crate::driver::{Driver, given, supported, unsupported};
use crate::messages::{
    Confirmed, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, CreateVolumeRequest,
    CreateVolumeResponse, DeleteVolumeRequest, Entry, GetCapacityRequest, GetCapacityResponse, Kind,
    ListVolumesRequest, ListVolumesResponse, Nothing, ServiceCapabilities, ServiceCapability,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
};
use rustix::fs::fstatvfs;
use tonic::Status;

/// How a token to go on with begins; the last name follows.
const AFTER: &str = "after:";

/// CREATE_DELETE_VOLUME, LIST_VOLUMES, GET_CAPACITY, EXPAND_VOLUME, SINGLE_NODE_MULTI_WRITER.
const CAPABILITIES: [i32; 5] = [1, 3, 4, 9, 13];

pub fn capabilities(driver: &Driver, _: Nothing) -> Result<ServiceCapabilities, Status> {
    // Sidecars ask this when they connect. The controller before may have left deleted volumes.
    driver.remove_deleted();
    let capabilities = CAPABILITIES.map(|kind| ServiceCapability { rpc: Some(Kind { kind }) });
    Ok(ServiceCapabilities { capabilities: capabilities.into() })
}

pub fn create(driver: &Driver, asked: CreateVolumeRequest) -> Result<CreateVolumeResponse, Status> {
    let name = given(&asked.name, "the name")?;
    supported(&asked.volume_capabilities)?;
    if asked.volume_content_source.is_some() {
        return Err(Status::invalid_argument("volumes are created empty"));
    }
    if let Some(parameter) = asked.parameters.keys().find(|name| !name.starts_with("csi.storage.k8s.io/")) {
        return Err(Status::invalid_argument(format!("there is no parameter {parameter:?}")));
    }
    let volume = driver.volumes()?.create(name, asked.capacity_range.as_ref())?;
    Ok(CreateVolumeResponse { volume: Some(volume) })
}

pub fn delete(driver: &Driver, asked: DeleteVolumeRequest) -> Result<Nothing, Status> {
    let id = given(&asked.volume_id, "the volume's id")?;
    driver.volumes()?.delete(id)?;
    driver.remove_deleted();
    Ok(Nothing {})
}

pub fn validate(
    driver: &Driver,
    asked: ValidateVolumeCapabilitiesRequest,
) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
    let id = given(&asked.volume_id, "the volume's id")?;
    let refused = unsupported(&asked.volume_capabilities)?;
    driver.volumes()?.directory(id)?;
    let confirmed = Confirmed {
        volume_context: asked.volume_context,
        volume_capabilities: asked.volume_capabilities,
        parameters: asked.parameters,
    };
    Ok(ValidateVolumeCapabilitiesResponse {
        confirmed: refused.is_none().then_some(confirmed),
        message: refused.unwrap_or_default(),
    })
}

pub fn list(driver: &Driver, asked: ListVolumesRequest) -> Result<ListVolumesResponse, Status> {
    let most = usize::try_from(asked.max_entries);
    let most = most.map_err(|_| Status::invalid_argument("fewer entries than none"))?;
    let after = match asked.starting_token.as_str() {
        "" => "",
        token => token.strip_prefix(AFTER).ok_or_else(|| Status::aborted("a token that no answer had"))?,
    };
    let (volumes, next) = driver.volumes()?.list(after, if most == 0 { usize::MAX } else { most })?;
    Ok(ListVolumesResponse {
        next_token: next.map_or_else(String::new, |last| format!("{AFTER}{last}")),
        entries: volumes.into_iter().map(|volume| Entry { volume: Some(volume) }).collect(),
    })
}

pub fn capacity(driver: &Driver, asked: GetCapacityRequest) -> Result<GetCapacityResponse, Status> {
    if !asked.volume_capabilities.is_empty() && unsupported(&asked.volume_capabilities)?.is_some() {
        return Ok(GetCapacityResponse::default());
    }
    let volumes = driver.volumes()?;
    let space = fstatvfs(volumes.root()).map_err(|why| Status::internal(why.to_string()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    Ok(GetCapacityResponse { available_capacity: i64::try_from(free).unwrap_or(i64::MAX) })
}

pub fn expand(driver: &Driver, asked: ControllerExpandVolumeRequest) -> Result<ControllerExpandVolumeResponse, Status> {
    let id = given(&asked.volume_id, "the volume's id")?;
    let range = asked.capacity_range.ok_or_else(|| Status::invalid_argument("the capacity is missing"))?;
    let capacity_bytes = driver.volumes()?.expand(id, &range)?;
    Ok(ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required: false })
}
