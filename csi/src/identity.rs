//! The service Identity.

use crate::driver::Driver;
use crate::messages::{
    BoolValue, Kind, Nothing, PluginCapabilities, PluginCapability, PluginCapabilityType, PluginInfo, Probed,
};
use tonic::Status;

const CONTROLLER_SERVICE: i32 = 1;
const EXPANDS_ONLINE: i32 = 1;

pub fn info(driver: &Driver, _: Nothing) -> Result<PluginInfo, Status> {
    Ok(PluginInfo { name: driver.name.clone(), vendor_version: env!("CARGO_PKG_VERSION").into() })
}

pub fn capabilities(_: &Driver, _: Nothing) -> Result<PluginCapabilities, Status> {
    let kinds = [
        PluginCapabilityType::Service(Kind { kind: CONTROLLER_SERVICE }),
        PluginCapabilityType::VolumeExpansion(Kind { kind: EXPANDS_ONLINE }),
    ];
    Ok(PluginCapabilities { capabilities: kinds.map(|kind| PluginCapability { kind: Some(kind) }).into() })
}

/// Ready if the Weft volume is mounted.
pub fn probe(driver: &Driver, _: Nothing) -> Result<Probed, Status> {
    driver.mount.point()?;
    Ok(Probed { ready: Some(BoolValue { value: true }) })
}
