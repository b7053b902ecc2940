//! gRPC: the services and their methods. All are unary, and all may wait for a file system, so each
//! runs on a thread of its own.

use crate::driver::Driver;
use crate::{controller, identity, node};
use prost::Message;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::http::{HeaderValue, Request, Response};
use tonic::server::{Grpc, NamedService};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

/// Methods that need no Weft volume, so that they work while it does not answer.
const WITHOUT_VOLUME: [&str; 6] = [
    "Identity/GetPluginInfo",
    "Identity/GetPluginCapabilities",
    "Controller/ControllerGetCapabilities",
    "Node/NodeUnpublishVolume",
    "Node/NodeGetCapabilities",
    "Node/NodeGetInfo",
];

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// Answers a request by a method, or with the status that it fails with.
fn unary<Q, A>(driver: Arc<Driver>, request: Request<Body>, method: fn(&Driver, Q) -> Result<A, Status>) -> Answer
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    let name = request.uri().path().to_owned();
    let service = service_fn(move |request: tonic::Request<Q>| {
        let (driver, name) = (driver.clone(), name.clone());
        async move {
            let permit = driver.calls.clone().try_acquire_owned().ok();
            let done = if permit.is_none() && !WITHOUT_VOLUME.iter().any(|method| name.ends_with(method)) {
                Err(Status::unavailable("too many calls wait for the Weft volume"))
            } else {
                let work = move || {
                    let _permit = permit;
                    method(&driver, request.into_inner())
                };
                let done = tokio::task::spawn_blocking(work).await;
                done.unwrap_or_else(|why| Err(Status::internal(why.to_string())))
            };
            if let Err(status) = &done {
                eprintln!("weft-csi: {name}: {}: {}", status.code(), status.message());
            }
            done.map(tonic::Response::new)
        }
    });
    Box::pin(async move { Ok(Grpc::new(ProstCodec::<A, Q>::default()).unary(service, request).await) })
}

fn unknown() -> Answer {
    Box::pin(async {
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        headers.insert("grpc-status", HeaderValue::from(Code::Unimplemented as i32));
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        Ok(response)
    })
}

fn answer(driver: Arc<Driver>, request: Request<Body>) -> Answer {
    let path = request.uri().path().to_owned();
    let Some(method) = path.strip_prefix("/csi.v1.") else { return unknown() };
    match method {
        "Identity/GetPluginInfo" => unary(driver, request, identity::info),
        "Identity/GetPluginCapabilities" => unary(driver, request, identity::capabilities),
        "Identity/Probe" => unary(driver, request, identity::probe),
        "Controller/CreateVolume" => unary(driver, request, controller::create),
        "Controller/DeleteVolume" => unary(driver, request, controller::delete),
        "Controller/ValidateVolumeCapabilities" => unary(driver, request, controller::validate),
        "Controller/ListVolumes" => unary(driver, request, controller::list),
        "Controller/GetCapacity" => unary(driver, request, controller::capacity),
        "Controller/ControllerGetCapabilities" => unary(driver, request, controller::capabilities),
        "Controller/ControllerExpandVolume" => unary(driver, request, controller::expand),
        "Node/NodePublishVolume" => unary(driver, request, node::publish),
        "Node/NodeUnpublishVolume" => unary(driver, request, node::unpublish),
        "Node/NodeGetVolumeStats" => unary(driver, request, node::stats),
        "Node/NodeGetCapabilities" => unary(driver, request, node::capabilities),
        "Node/NodeGetInfo" => unary(driver, request, node::info),
        _ => unknown(),
    }
}

macro_rules! services {
    ($($service:ident $name:literal),*) => { $(
        /// A service of the interface.
        #[derive(Clone)]
        pub struct $service(pub Arc<Driver>);

        impl NamedService for $service {
            const NAME: &'static str = $name;
        }

        impl Service<Request<Body>> for $service {
            type Response = Response<Body>;
            type Error = Infallible;
            type Future = Answer;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: Request<Body>) -> Answer {
                answer(self.0.clone(), request)
            }
        }
    )* };
}

services!(Identity "csi.v1.Identity", Controller "csi.v1.Controller", Node "csi.v1.Node");
