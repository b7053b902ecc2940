use super::*;
use crate::get::AT_ONCE;
use std::time::Duration;

/// Objects of all lengths at which they are read another way, from disks and from the page cache,
/// whole and in part. What they took of the gateway's memory is free afterwards.
#[test]
fn objects_come_as_they_were_put() {
    let lab = Lab::new("bodies");
    let gateway = lab.gateway();
    lab.run(async {
        bucket(&gateway).await;
        let few = AT_ONCE as usize;
        for size in [0, 1, few - 1, few, few + 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 12_345, 9 << 20] {
            let bytes = noise(size);
            put(&gateway, "k", &bytes).await.unwrap();
            for _ in 0..3 {
                assert!(get(&gateway, "k").await.unwrap() == bytes, "{size} bytes");
            }
            for range in [0..1, 5..few + 5, 5..few + 6, few..size].into_iter().filter(|range| range.start < size) {
                let (first, last) = (range.start as u64, range.end as u64 - 1);
                let mut input = GetObjectInput::builder().bucket("b".into()).key("k".into()).build().unwrap();
                input.range = Some(Range::Int { first, last: Some(last) });
                let found = gateway.get_object(request(input)).await.unwrap().output;
                let expected = &bytes[range.start..range.end.min(size)];
                assert_eq!(found.content_length, Some(expected.len() as i64));
                let mut body = found.body.unwrap();
                let mut read = Vec::new();
                while let Some(piece) = body.next().await {
                    read.extend_from_slice(&piece.unwrap());
                }
                assert!(read == expected, "{range:?} of {size} bytes");
            }
        }
        // A client that goes away in the middle.
        let input = GetObjectInput::builder().bucket("b".into()).key("k".into()).build().unwrap();
        let mut body = gateway.get_object(request(input)).await.unwrap().output.body.unwrap();
        body.next().await.unwrap().unwrap();
        drop(body);
        let all = tokio::time::timeout(Duration::from_secs(600), gateway.take(MEMORY)).await;
        drop(all.expect("all memory is free").unwrap());
    });
}
