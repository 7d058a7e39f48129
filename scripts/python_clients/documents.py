"""Files and vector stores by OpenAI's own client."""
import io

LEAVE = b"# Leave\n\nEverybody has thirty days of leave a year.\n\n# Travel\n\nTrains are booked by the office in Kelm.\n"


def openai_documents(url, _model):
    """Files taken and given back, a store with a batch, its states, a search with a filter, and what is removed."""
    import openai
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    file = client.files.create(file=("leave.md", io.BytesIO(LEAVE)), purpose="assistants")
    assert (file.filename, file.bytes, file.status) == ("leave.md", len(LEAVE), "processed"), file
    assert client.files.retrieve(file.id).id == file.id and client.files.content(file.id).read() == LEAVE
    assert [entry.id for entry in client.files.list(purpose="assistants", limit=1)] == [file.id]
    store = client.vector_stores.create(name="handbook", metadata={"team": "ours"})
    assert store.file_counts.total == 0 and store.metadata == {"team": "ours"}, store
    member = client.vector_stores.files.create_and_poll(file.id, vector_store_id=store.id, attributes={"year": 2024})
    assert (member.status, member.last_error) == ("completed", None), member
    batch = client.vector_stores.file_batches.upload_and_poll(store.id, files=[("a.txt", b"A song of Dosh."), ("b.bin", bytes(range(256)) * 9)])
    assert (batch.file_counts.completed, batch.file_counts.failed) == (1, 1), batch
    failed = list(client.vector_stores.files.list(store.id, filter="failed"))
    assert len(failed) == 1 and failed[0].last_error.code == "unsupported_file", failed
    assert len(list(client.vector_stores.files.list(store.id, limit=1))) == 3, "pages follow each other"
    assert len(list(client.vector_stores.file_batches.list_files(batch.id, vector_store_id=store.id))) == 2
    found = client.vector_stores.search(store.id, query="How many days of leave?", max_num_results=2).data
    assert "thirty days" in found[0].content[0].text and found[0].file_id == file.id and found[0].score == 1, found
    filters = {"type": "and", "filters": [{"type": "gte", "key": "year", "value": 2024}]}
    assert {hit.file_id for hit in client.vector_stores.search(store.id, query=["Dosh", "Kelm"], filters=filters)} == {file.id}
    member = client.vector_stores.files.update(file.id, vector_store_id=store.id, attributes={"year": 2020})
    assert member.attributes == {"year": 2020} and not client.vector_stores.search(store.id, query="leave", filters=filters).data
    text = "\n\n".join(part.text for part in client.vector_stores.files.content(file.id, vector_store_id=store.id))
    assert text.startswith("# Leave") and "Kelm" in text, text
    assert client.vector_stores.update(store.id, name="rules").name == "rules"
    assert client.vector_stores.files.delete(file.id, vector_store_id=store.id).deleted and client.files.delete(file.id).deleted
    assert client.vector_stores.delete(store.id).deleted
    try:
        client.vector_stores.retrieve(store.id)
        raise AssertionError("a store that was removed was found")
    except openai.NotFoundError as error:
        assert error.code == "vector_store_not_found", error
