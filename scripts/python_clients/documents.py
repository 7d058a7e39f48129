"""Files, vector stores, and answers that cite documents: by OpenAI's client, by Anthropic's, and by frameworks on top of them."""
import asyncio
import io
import json
import os
import pathlib
import types
import urllib.request
import uuid

from documents import Client
from python_clients.asked import DESCRIPTION, QUESTION, RESULT

LEAVE = b"# Leave\n\nEverybody has thirty days of leave a year.\n\n# Travel\n\nTrains are booked by the office in Kelm.\n"
# Two files with a fact each, in words that the shipped model reads well and cites if it is shown both; letters of two bytes before them.
SENTENCES = {
    "lockers.md": ["Jürgen owns a dog.", "The access code of the Kelmar locker is 4821.", "A quiet child found an old coin last summer."],
    "rooms.md": ["Zoë works as a baker.", "Room 417 is reserved for Diego Martin.", "The old miller walked across the stone bridge."]}
FILES = {name: " ".join(sentences) for name, sentences in SENTENCES.items()}
LOCKER, CODE = "What is the access code of the Kelmar locker?", "4821"
ROOM, GUEST = "For whom is room 417 reserved?", "Diego Martin"


def store_of_files(url):
    """The id of a store with `FILES`, and the name of each file by its id."""
    store, files = Client(url.removesuffix("/v1"), None).filled("desk", FILES.items())
    return store, dict(zip(files, FILES))


def encoder_of(url, model):
    """The name under which the service makes vectors: its encoder's, if it has one."""
    with urllib.request.urlopen(f"{url}/models", timeout=10) as reply:
        names = [entry["id"] for entry in json.load(reply)["data"]]
    return next((name for name in names if name != model), model)


def check_file_citation(note, text, name):
    """Whether a citation is of that file, its mark stands where it says in the answer, and its quote where it says in the file's text."""
    assert note["filename"] == name, note
    assert text[note["start_index"]:note["end_index"]].strip("[]").isdigit(), (note, text)
    assert FILES[name].encode()[note["source_start"]:note["source_end"]].decode() == note["quote"], note


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


def openai_file_search(url, model):
    """Answers that the service searches for: a response whole, streamed and gone on from, its items sent back, and a chat."""
    import openai
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    store, names = store_of_files(url)
    settings = dict(model=model, tools=[{"type": "file_search", "vector_store_ids": [store], "max_num_results": 2}], temperature=0)
    first = client.responses.create(input=LOCKER, include=["file_search_call.results"], **settings)
    search, part = first.output[0], first.output[-1].content[0]
    assert (search.type, search.queries) == ("file_search_call", [LOCKER]) and names[search.results[0].file_id] == "lockers.md", search
    assert CODE in part.text and len(part.annotations) == 1, part
    check_file_citation(part.annotations[0].model_dump(), part.text, "lockers.md")
    with client.responses.stream(input=LOCKER, **settings) as stream:
        events = list(stream)
        streamed = stream.get_final_response().output[-1].content[0]
    added = [event.annotation for event in events if event.type == "response.output_text.annotation.added"]
    assert (streamed.text, streamed.annotations) == (part.text, part.annotations), streamed
    assert added and dict(added[0]) == part.annotations[0].model_dump(), added
    message = client.chat.completions.create(messages=[{"role": "user", "content": ROOM}], **settings).choices[0].message
    assert GUEST in message.content and len(message.annotations) == 1, message
    check_file_citation(message.model_dump()["annotations"][0]["file_citation"], message.content, "rooms.md")
    asked = [{"role": "user", "content": LOCKER}, *[item.model_dump() for item in first.output], {"role": "user", "content": ROOM}]
    for more in (dict(input=ROOM, previous_response_id=first.id), dict(input=asked)):
        answer = client.responses.create(**settings, **more)
        assert GUEST in answer.output_text, answer


def cited_blocks(kind):
    """The two files as blocks of that kind of citation."""
    for name, sentences in SENTENCES.items():
        blocks = [{"type": "text", "text": sentence} for sentence in sentences]
        whole = {"type": "text", "media_type": "text/plain", "data": FILES[name]}
        block = {"char_location": {"type": "document", "source": whole},
                 "content_block_location": {"type": "document", "source": {"type": "content", "content": blocks}},
                 "search_result_location": {"type": "search_result", "source": f"https://example.org/{name}", "content": blocks}}[kind]
        yield block | {"title": name, "citations": {"enabled": True}}


def check_citation(note, kind, at):
    """Whether a citation of that kind is of the file at that place, and has the fact where it says."""
    name, fact = list(SENTENCES)[at], SENTENCES[list(SENTENCES)[at]][1]
    assert (note.type, note.cited_text) == (kind, fact), note
    assert (note.search_result_index if kind == "search_result_location" else note.document_index) == at, note
    if kind == "char_location":
        assert FILES[name][note.start_char_index:note.end_char_index] == fact, note
    else:
        assert SENTENCES[name][note.start_block_index:note.end_block_index] == [fact], note


def anthropic(url, model):
    """Documents as text and as blocks, and results of a search: their citations, whole, streamed and sent back. A search of files. A PDF
    is refused."""
    import anthropic
    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0)
    settings = dict(model=model, max_tokens=300, extra_body={"temperature": 0})
    for kind in ("char_location", "content_block_location", "search_result_location"):
        for at, (question, value) in enumerate(((LOCKER, CODE), (ROOM, GUEST))):
            asked = [{"role": "user", "content": [*cited_blocks(kind), {"type": "text", "text": question}]}]
            message = client.messages.create(messages=asked, **settings)
            noted = [note for part in message.content for note in part.citations or []]
            assert value in message.content[0].text and len(noted) == 1, (kind, message)
            check_citation(noted[0], kind, at)
            with client.messages.stream(messages=asked, **settings) as stream:
                deltas = [event.delta for event in stream if event.type == "content_block_delta"]
                streamed = stream.get_final_message()
            told = [delta.citation.to_dict() for delta in deltas if delta.type == "citations_delta"]
            assert told == [note.to_dict() for note in noted], (told, noted)
            assert [part.to_dict() for part in streamed.content] == [part.to_dict() for part in message.content], (streamed, message)
        later = [*asked, {"role": "assistant", "content": message.content}, {"role": "user", "content": LOCKER}]
        assert CODE in client.messages.create(messages=later, **settings).content[0].text
    store, _ = store_of_files(url)
    search = {"type": "file_search", "vector_store_ids": [store], "max_num_results": 2}
    message = client.messages.create(messages=[{"role": "user", "content": LOCKER}], tools=[search], **settings)
    noted = [note for part in message.content for note in part.citations or []]
    told = [(note.type, note.title, note.cited_text) for note in noted]
    assert told == [("search_result_location", "lockers.md", SENTENCES["lockers.md"][1])], message
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
    try:
        client.messages.create(messages=[{"role": "user", "content": [pdf]}], **settings)
        raise AssertionError("a PDF within a message was taken")
    except anthropic.BadRequestError as error:
        assert "messages[0].content[0].source.type" in str(error), error


def langchain(url, model):
    """The built-in tool `file_search`, whole, streamed and sent back; vectors; an order by a reranker; documents of messages."""
    from langchain_anthropic import ChatAnthropic
    from langchain_cohere import CohereRerank
    from langchain_core.documents import Document
    from langchain_core.messages import HumanMessage
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    store, _ = store_of_files(url)
    settings = dict(model=model, base_url=url, api_key="none", max_retries=0)
    root = url.removesuffix("/v1")
    chat = ChatOpenAI(temperature=0, use_responses_api=True, **settings).bind_tools([{"type": "file_search", "vector_store_ids": [store]}])
    message = chat.invoke(LOCKER)
    pieces = list(chat.stream(LOCKER))
    streamed = sum(pieces[1:], pieces[0])
    for said in (message.content, streamed.content):
        part = said[-1]
        assert said[0]["type"] == "file_search_call" and CODE in part["text"] and len(part["annotations"]) == 1, said
        check_file_citation(part["annotations"][0], part["text"], "lockers.md")
    # Without the setting it asks another machine for a tokenizer.
    vectors = OpenAIEmbeddings(check_embedding_ctx_length=False, **settings | {"model": encoder_of(url, model)})
    several = vectors.embed_documents(list(FILES.values()))
    assert len(several) == 2 and several[0] != several[1] and vectors.embed_query(FILES["rooms.md"]) == several[1]
    rerank = CohereRerank(base_url=root, model=model, cohere_api_key="none", top_n=2)
    documents = [Document(text, metadata={"name": name}) for name, text in FILES.items()]
    ranked = rerank.compress_documents([*documents, Document("Dosh has red ships.")], LOCKER)
    scores = [document.metadata["relevance_score"] for document in ranked]
    assert len(ranked) == 2 and scores == sorted(scores, reverse=True) and 0 <= scores[1] <= 1, ranked
    claude = ChatAnthropic(base_url=root, model=model, api_key="none", max_tokens=300, temperature=0, max_retries=0)
    asked = [HumanMessage([*cited_blocks("char_location"), {"type": "text", "text": LOCKER}])]
    pieces = list(claude.stream(asked))
    for answer in (claude.invoke(asked), sum(pieces[1:], pieces[0])):
        check_citation(types.SimpleNamespace(**answer.content[0]["citations"][0]), "char_location", 0)
    assert GUEST in claude.invoke([*asked, answer, HumanMessage(ROOM)]).text
    assert GUEST in chat.invoke([HumanMessage(LOCKER), message, HumanMessage(ROOM)]).text


def openai_agents(url, model):
    """An agent with a search of files and a tool of its own: what the files say, whole and streamed, and what the tool says."""
    import openai
    from agents import Agent, FileSearchTool, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
    set_tracing_disabled(True)
    asked = []

    @function_tool(description_override=DESCRIPTION)
    def get_weather(city: str) -> str:
        asked.append(city)
        return RESULT

    store, _ = store_of_files(url)
    search = FileSearchTool(vector_store_ids=[store], max_num_results=2, include_search_results=True)
    client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    agent = Agent(name="desk", model_settings=ModelSettings(temperature=0), tools=[search],
                  model=OpenAIResponsesModel(model=model, openai_client=client))

    async def drive():
        streamed = Runner.run_streamed(agent, LOCKER)
        kinds = [event.data.type async for event in streamed.stream_events() if event.type == "raw_response_event"]
        assert "response.file_search_call.completed" in kinds and "response.output_text.annotation.added" in kinds, kinds
        for run in (streamed, await Runner.run(agent, LOCKER)):
            searched, part = run.new_items[0].raw_item, run.new_items[-1].raw_item.content[0]
            assert CODE in run.final_output and "lockers.md" in [result.filename for result in searched.results], run
            check_file_citation(part.annotations[0].model_dump(), part.text, "lockers.md")
        later = await Runner.run(agent, [*run.to_input_list(), {"role": "user", "content": ROOM}])
        assert GUEST in later.final_output, later
        # Where passages are shown, the shipped model answers from them alone: here the search finds none.
        nothing = FileSearchTool(vector_store_ids=[store], filters={"type": "eq", "key": "year", "value": 1900})
        output = (await Runner.run(agent.clone(tools=[nothing, get_weather]), QUESTION)).final_output
        assert asked[0] == "Paris" and output, (asked, output)

    asyncio.run(drive())


def open_webui_rag(url, model):
    """Open WebUI's own retrieval: vectors and ranks from the service, its store and its prompt between them, and the answer."""
    os.environ |= {"DATA_DIR": str(pathlib.Path("data").resolve()), "FROM_INIT_PY": "true", "WEBUI_SECRET_KEY": "none",
                   "OFFLINE_MODE": "true", "HF_HUB_OFFLINE": "1", "ANONYMIZED_TELEMETRY": "false", "GLOBAL_LOG_LEVEL": "ERROR"}
    pathlib.Path("data").mkdir(exist_ok=True)
    from open_webui.config import DEFAULT_RAG_TEMPLATE
    from open_webui.retrieval.models.external import ExternalReranker
    from open_webui.retrieval.utils import get_embedding_function, get_reranking_function, query_doc, query_doc_with_hybrid_search
    from open_webui.retrieval.vector.async_client import ASYNC_VECTOR_DB_CLIENT
    from open_webui.utils.misc import add_or_update_user_message
    from open_webui.utils.task import rag_template
    encoder = encoder_of(url, model)
    embed = get_embedding_function("openai", encoder, None, url, "none", embedding_batch_size=1)
    rank = get_reranking_function("external", model, ExternalReranker("none", f"{url}/rerank", model))

    async def prompt():
        vectors, collection = await embed(list(FILES.values()), prefix=None), str(uuid.uuid4())
        items = [dict(id=str(uuid.uuid4()), text=text, vector=vector, metadata={"source": name})
                 for (name, text), vector in zip(FILES.items(), vectors)]
        await ASYNC_VECTOR_DB_CLIENT.insert(collection, items)
        # Without an encoder only the same text is surely near.
        near = query_doc(collection, await embed("Who has booked the meeting room?" if encoder != model else FILES["rooms.md"]), 1)
        assert near.metadatas[0][0]["source"] == "rooms.md", near
        stored = await ASYNC_VECTOR_DB_CLIENT.get(collection)
        found = await query_doc_with_hybrid_search(collection, stored, LOCKER, embed, k=2, reranking_function=rank, k_reranker=2, r=0.0,
                                                   hybrid_bm25_weight=0.5)
        assert found["distances"][0] == sorted(found["distances"][0], reverse=True) and len(found["documents"][0]) == 2, found
        sources = [f'<source id="{at}">{text}</source>' for at, text in enumerate(found["documents"][0], 1)]
        context = await rag_template(DEFAULT_RAG_TEMPLATE, "\n".join(sources), LOCKER)
        return add_or_update_user_message(context, [{"role": "user", "content": LOCKER}], append=False)

    body = {"model": model, "messages": asyncio.run(prompt()), "temperature": 0}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as reply:
        answer = json.load(reply)["choices"][0]["message"]["content"]
    assert CODE in answer, answer
