"""What is built on fsspec, on a volume and on a cluster."""

import numpy
import pytest

pandas = pytest.importorskip("pandas")


@pytest.fixture(params=["directory", "cluster"])
def url(request, name):
    """An address below which nothing is."""
    if request.param == "directory":
        request.getfixturevalue("volume")
        return f"weft://{request.getfixturevalue('shared_directory')}:/{name}"
    return f"{request.getfixturevalue('cluster')}:/{name}"


@pytest.fixture
def frame():
    values = numpy.random.default_rng(1)
    return pandas.DataFrame({"key": numpy.arange(20_000) % 4, "value": values.standard_normal(20_000)})


def test_pandas(url, frame):
    frame.to_csv(f"{url}/a/table.csv", index=False)
    assert pandas.read_csv(f"{url}/a/table.csv")["key"].equals(frame["key"])
    pytest.importorskip("pyarrow")
    frame.to_parquet(f"{url}/a/table.parquet")
    assert pandas.read_parquet(f"{url}/a/table.parquet").equals(frame)
    assert pandas.read_parquet(f"{url}/a/table.parquet", columns=["key"]).equals(frame[["key"]])


def test_pyarrow_datasets(url, frame):
    dataset = pytest.importorskip("pyarrow.dataset")
    import fsspec
    import pyarrow

    fs, path = fsspec.url_to_fs(f"{url}/dataset")
    table = pyarrow.Table.from_pandas(frame)
    dataset.write_dataset(
        table, path, filesystem=fs, format="parquet", partitioning=["key"], partitioning_flavor="hive"
    )
    found = dataset.dataset(path, filesystem=fs, format="parquet", partitioning="hive")
    assert len(found.files) == 4 and found.count_rows() == len(frame)
    part = found.to_table(filter=dataset.field("key") == 3)
    assert sorted(part["value"].to_pylist()) == sorted(frame[frame["key"] == 3]["value"])


def test_zarr(url):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(f"{url}/array", shape=(100, 100), chunks=(30, 30), dtype="f8")
    values = numpy.random.default_rng(2).standard_normal((100, 100))
    array[:] = values
    array[20:50, 10] = 7
    values[20:50, 10] = 7
    found = zarr.open_array(f"{url}/array", mode="r")
    assert (found[:] == values).all() and (found[25:35, 5:95] == values[25:35, 5:95]).all()


def test_xarray(url):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    values = numpy.arange(600.0).reshape(20, 30)
    data = xarray.Dataset({"t": (("y", "x"), values)}, coords={"x": numpy.arange(30)})
    data.to_zarr(f"{url}/data", zarr_format=3, consolidated=False)
    found = xarray.open_zarr(f"{url}/data", consolidated=False, chunks=None)
    assert found.load().equals(data)
    assert (found["t"].sel(x=7).values == values[:, 7]).all()
