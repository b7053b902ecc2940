//! The messages of the Container Storage Interface 1.13 (`csi.proto`), as far as this driver reads
//! or answers them. What is left out of a request is skipped when it is decoded: secrets among it.

use prost::{Enumeration, Message, Oneof};
use std::collections::HashMap;

/// A message without fields that matter here.
#[derive(Clone, PartialEq, Message)]
pub struct Nothing {}

#[derive(Clone, PartialEq, Message)]
pub struct PluginInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub vendor_version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct PluginCapabilities {
    #[prost(message, repeated, tag = "1")]
    pub capabilities: Vec<PluginCapability>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PluginCapability {
    #[prost(oneof = "PluginCapabilityType", tags = "1, 2")]
    pub kind: Option<PluginCapabilityType>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum PluginCapabilityType {
    #[prost(message, tag = "1")]
    Service(Kind),
    #[prost(message, tag = "2")]
    VolumeExpansion(Kind),
}

/// A number of an enumeration, in a message of its own.
#[derive(Clone, PartialEq, Message)]
pub struct Kind {
    #[prost(int32, tag = "1")]
    pub kind: i32,
}

/// A capability of the services Controller and Node.
#[derive(Clone, PartialEq, Message)]
pub struct ServiceCapability {
    #[prost(message, optional, tag = "1")]
    pub rpc: Option<Kind>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ServiceCapabilities {
    #[prost(message, repeated, tag = "1")]
    pub capabilities: Vec<ServiceCapability>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Probed {
    #[prost(message, optional, tag = "1")]
    pub ready: Option<BoolValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct BoolValue {
    #[prost(bool, tag = "1")]
    pub value: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct CapacityRange {
    #[prost(int64, tag = "1")]
    pub required_bytes: i64,
    #[prost(int64, tag = "2")]
    pub limit_bytes: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct VolumeCapability {
    #[prost(oneof = "AccessType", tags = "1, 2")]
    pub access_type: Option<AccessType>,
    #[prost(message, optional, tag = "3")]
    pub access_mode: Option<AccessMode>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum AccessType {
    #[prost(message, tag = "1")]
    Block(Nothing),
    #[prost(message, tag = "2")]
    Mount(MountVolume),
}

#[derive(Clone, PartialEq, Message)]
pub struct MountVolume {
    #[prost(string, tag = "1")]
    pub fs_type: String,
    #[prost(string, repeated, tag = "2")]
    pub mount_flags: Vec<String>,
    #[prost(string, tag = "3")]
    pub volume_mount_group: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct AccessMode {
    #[prost(enumeration = "Mode", tag = "1")]
    pub mode: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Mode {
    Unknown = 0,
    SingleNodeWriter = 1,
    SingleNodeReaderOnly = 2,
    MultiNodeReaderOnly = 3,
    MultiNodeSingleWriter = 4,
    MultiNodeMultiWriter = 5,
    SingleNodeSingleWriter = 6,
    SingleNodeMultiWriter = 7,
}

#[derive(Clone, PartialEq, Message)]
pub struct Volume {
    #[prost(int64, tag = "1")]
    pub capacity_bytes: i64,
    #[prost(string, tag = "2")]
    pub volume_id: String,
    #[prost(map = "string, string", tag = "3")]
    pub volume_context: HashMap<String, String>,
    #[prost(message, optional, tag = "4")]
    pub content_source: Option<ContentSource>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ContentSource {
    #[prost(oneof = "Source", tags = "1, 2")]
    pub source: Option<Source>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Source {
    #[prost(message, tag = "1")]
    Snapshot(SourceId),
    #[prost(message, tag = "2")]
    Volume(SourceId),
}

#[derive(Clone, PartialEq, Message)]
pub struct SourceId {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct CreateVolumeRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub capacity_range: Option<CapacityRange>,
    #[prost(message, repeated, tag = "3")]
    pub volume_capabilities: Vec<VolumeCapability>,
    #[prost(map = "string, string", tag = "4")]
    pub parameters: HashMap<String, String>,
    #[prost(message, optional, tag = "6")]
    pub volume_content_source: Option<ContentSource>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CreateVolumeResponse {
    #[prost(message, optional, tag = "1")]
    pub volume: Option<Volume>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DeleteVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValidateVolumeCapabilitiesRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(map = "string, string", tag = "2")]
    pub volume_context: HashMap<String, String>,
    #[prost(message, repeated, tag = "3")]
    pub volume_capabilities: Vec<VolumeCapability>,
    #[prost(map = "string, string", tag = "4")]
    pub parameters: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Confirmed {
    #[prost(map = "string, string", tag = "1")]
    pub volume_context: HashMap<String, String>,
    #[prost(message, repeated, tag = "2")]
    pub volume_capabilities: Vec<VolumeCapability>,
    #[prost(map = "string, string", tag = "3")]
    pub parameters: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValidateVolumeCapabilitiesResponse {
    #[prost(message, optional, tag = "1")]
    pub confirmed: Option<Confirmed>,
    #[prost(string, tag = "2")]
    pub message: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListVolumesRequest {
    #[prost(int32, tag = "1")]
    pub max_entries: i32,
    #[prost(string, tag = "2")]
    pub starting_token: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListVolumesResponse {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    #[prost(string, tag = "2")]
    pub next_token: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    #[prost(message, optional, tag = "1")]
    pub volume: Option<Volume>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetCapacityRequest {
    #[prost(message, repeated, tag = "1")]
    pub volume_capabilities: Vec<VolumeCapability>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetCapacityResponse {
    #[prost(int64, tag = "1")]
    pub available_capacity: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ControllerExpandVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(message, optional, tag = "2")]
    pub capacity_range: Option<CapacityRange>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ControllerExpandVolumeResponse {
    #[prost(int64, tag = "1")]
    pub capacity_bytes: i64,
    #[prost(bool, tag = "2")]
    pub node_expansion_required: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodePublishVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(string, tag = "4")]
    pub target_path: String,
    #[prost(message, optional, tag = "5")]
    pub volume_capability: Option<VolumeCapability>,
    #[prost(bool, tag = "6")]
    pub readonly: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeUnpublishVolumeRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(string, tag = "2")]
    pub target_path: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeGetVolumeStatsRequest {
    #[prost(string, tag = "1")]
    pub volume_id: String,
    #[prost(string, tag = "2")]
    pub volume_path: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeGetVolumeStatsResponse {
    #[prost(message, repeated, tag = "1")]
    pub usage: Vec<VolumeUsage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct VolumeUsage {
    #[prost(int64, tag = "1")]
    pub available: i64,
    #[prost(int64, tag = "2")]
    pub total: i64,
    #[prost(int64, tag = "3")]
    pub used: i64,
    /// 1: bytes; 2: inodes.
    #[prost(int32, tag = "4")]
    pub unit: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeInfo {
    #[prost(string, tag = "1")]
    pub node_id: String,
    #[prost(int64, tag = "2")]
    pub max_volumes_per_node: i64,
}
