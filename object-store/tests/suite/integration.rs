//! The tests that `object_store` has for its stores, over a volume in a directory and over a
//! cluster.

use crate::lab::{Cluster, Lab};
use object_store::integration::*;
use weft_object_store::VolumeStore;

async fn all(store: &VolumeStore) {
    put_get_delete_list(store).await;
    // These expect that nothing else is there.
    stream_get(store).await;
    list_uses_directories_correctly(store).await;
    list_with_delimiter(store).await;
    list_with_offset_exclusivity(store).await;
    list_paginated(store, store).await;
    rename_and_copy(store).await;
    copy_if_not_exists(store).await;
    copy_rename_nonexistent_object(store).await;
    assert!(get_nonexistent_object(store, None).await.is_err());
    multipart(store, store).await;
    multipart_with_opts(store, store).await;
    multipart_put_part_out_of_order(store, store).await;
    multipart_race_condition(store, true).await;
    multipart_out_of_order(store).await;
    put_get_attributes(store).await;
    get_opts(store).await;
    put_opts(store, true).await;
}

#[tokio::test]
async fn a_volume_in_a_directory_passes_the_tests_of_object_store() {
    let lab = Lab::new();
    let store = lab.open().await;
    all(&store).await;
    store.close().await.unwrap();
}

#[test]
fn a_client_of_a_cluster_passes_the_tests_of_object_store() {
    let cluster = Cluster::start();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = VolumeStore::open(&cluster.address).await.unwrap();
        all(&store).await;
        store.close().await.unwrap();
    });
}
