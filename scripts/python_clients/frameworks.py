"""Frameworks of agents, each with a chat turn, a tool that it runs itself, and a typed answer where it has those."""
import asyncio
import json
import os

from python_clients.asked import DESCRIPTION, PLACE, QUESTION, RESULT, place

SUM = "What is 17 + 25?"


def weather(asked):
    """The tool as a plain function, which notes the cities that it is asked for."""
    def get_weather(city: str) -> str:
        asked.append(city)
        return RESULT

    # smolagents reads the argument's description from here.
    get_weather.__doc__ = f"{DESCRIPTION}\n\nArgs:\n    city: The city"
    return get_weather


def instructor(url, model):
    """Typed answers in each mode that it has for OpenAI's client, and in those with tools for Anthropic's."""
    import typing

    import anthropic
    import instructor
    import openai
    import pydantic
    kind, modes = place(), instructor.Mode
    weather_type = pydantic.create_model("GetWeather", __doc__=DESCRIPTION, city=(str, ...))
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "year": {"type": "integer"}}, "required": ["city", "year"]}
    # Where nothing but the prompt asks for the type, the shipped model answers prompts of its own training.
    extract = f"Extract JSON.\nInput: Anna moved to Paris in 2019.\nOutput schema: {json.dumps(schema)}"
    openai_modes = (modes.FUNCTIONS, modes.TOOLS, modes.TOOLS_STRICT, modes.PARALLEL_TOOLS, modes.JSON, modes.JSON_O1, modes.MD_JSON,
                    modes.JSON_SCHEMA, modes.RESPONSES_TOOLS, modes.RESPONSES_TOOLS_WITH_INBUILT_TOOLS)
    anthropic_modes = (modes.ANTHROPIC_TOOLS, modes.ANTHROPIC_REASONING_TOOLS, modes.ANTHROPIC_PARALLEL_TOOLS)
    for mode in openai_modes + anthropic_modes:
        if mode in openai_modes:
            client = instructor.from_openai(openai.OpenAI(base_url=url, api_key="none"), mode=mode)
            greedy = {"temperature": 0}
        else:
            client = instructor.from_anthropic(anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none"), mode=mode)
            greedy = {"extra_body": {"temperature": 0}}   # which the library's newest signature leaves out
        many = mode in (modes.PARALLEL_TOOLS, modes.ANTHROPIC_PARALLEL_TOOLS)
        prompt = QUESTION if many else extract if mode in (modes.JSON, modes.MD_JSON) else PLACE
        made = client.chat.completions.create(model=model, messages=[{"role": "user", "content": prompt}], max_tokens=500, max_retries=0,
                                              response_model=typing.Iterable[weather_type] if many else kind, **greedy)
        assert [call.city for call in made] == ["Paris"] if many else isinstance(made, kind), (mode, made)


def smolagents(url, model):
    """A message, one that is typed, a call that must come, and agents that call tools, whole and streamed."""
    from smolagents import ChatMessage, OpenAIModel, Tool, ToolCallingAgent
    settings = dict(model_id=model, api_base=url, api_key="none", temperature=0, max_tokens=500)
    chat, kind = OpenAIModel(**settings), place()
    text = chat.generate([ChatMessage(role="user", content=[{"type": "text", "text": SUM}])]).content
    assert "42" in text, text
    schema = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": kind.model_json_schema()}}
    kind.model_validate_json(chat.generate([ChatMessage(role="user", content=PLACE)], response_format=schema).content)

    class Weather(Tool):
        name, description, output_type = "get_weather", DESCRIPTION, "string"
        inputs = {"city": {"type": "string", "description": "The city"}}

        def forward(self, city: str) -> str:
            return RESULT

    call = chat.generate([ChatMessage(role="user", content=QUESTION)], tools_to_call_from=[Weather()]).tool_calls[0].function
    assert (call.name, call.arguments) == ("get_weather", '{"city": "Paris"}'), call
    for streams in (False, True):
        # Its own prompt is beyond the shipped model, which calls the tool that ends the run: a whole run, if a poor one.
        agent = ToolCallingAgent(tools=[Weather()], model=chat, max_steps=2, stream_outputs=streams)
        run = agent.run(QUESTION, return_full_result=True)
        assert run.state == "success" and run.token_usage.output_tokens, run


def haystack(url, model):
    """A stream, an agent with a tool and a typed answer, on chat completions and on responses."""
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function
    from haystack.utils import Secret
    settings = dict(model=model, api_base_url=url, api_key=Secret.from_token("none"))
    kind, asked, greedy = place(), [], {"temperature": 0}
    tool = create_tool_from_function(weather(asked), name="get_weather", description=DESCRIPTION)
    for way, field in ((OpenAIChatGenerator, "response_format"), (OpenAIResponsesChatGenerator, "text_format")):
        parts = []
        chat = way(generation_kwargs=greedy, streaming_callback=lambda chunk, parts=parts: parts.append(chunk.content), **settings)
        text = chat.run([ChatMessage.from_user(SUM)])["replies"][0].text
        assert "42" in text and "".join(parts) == text, (text, parts)
        asked.clear()
        agent = Agent(chat_generator=way(generation_kwargs=greedy, **settings), tools=[tool], system_prompt="Be brief.")
        text = agent.run(messages=[ChatMessage.from_user(QUESTION)])["messages"][-1].text
        assert asked == ["Paris"] and "21" in text, (asked, text)
        typed = way(generation_kwargs=greedy | {field: kind}, **settings).run([ChatMessage.from_user(PLACE)])["replies"][0].text
        kind.model_validate_json(typed)


def semantic_kernel(url, model):
    """A function that the kernel calls by itself, a stream, and a typed answer."""
    import openai
    from semantic_kernel import Kernel
    from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.functions import kernel_function
    service = OpenAIChatCompletion(ai_model_id=model, async_client=openai.AsyncOpenAI(base_url=url, api_key="none"))
    asked, kernel, kind = [], Kernel(), place()
    kernel.add_plugin({"get_weather": kernel_function(name="get_weather", description=DESCRIPTION)(weather(asked))}, "weather")

    def said(text):
        history = ChatHistory()
        history.add_user_message(text)
        return history

    def settings(**more):
        return OpenAIChatPromptExecutionSettings(temperature=0, **more)

    async def talk():
        by_itself = settings(function_choice_behavior=FunctionChoiceBehavior.Auto())
        text = str(await service.get_chat_message_content(said(QUESTION), by_itself, kernel=kernel))
        assert asked == ["Paris"] and "21" in text, (asked, text)
        text = ""
        async for parts in service.get_streaming_chat_message_contents(said(SUM), settings()):
            text += "".join(map(str, parts))
        assert "42" in text, text
        kind.model_validate_json(str(await service.get_chat_message_content(said(PLACE), settings(response_format=kind))))

    asyncio.run(talk())


def crewai(url, model):
    """Its model whole, streamed and typed, and a crew of one with a tool."""
    os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_TRACING_ENABLED="false")
    from crewai import LLM, Agent, Crew, Task
    from crewai.tools import tool
    settings = dict(model=f"openai/{model}", base_url=url, api_key="none", temperature=0, max_tokens=1000)
    chat, kind, asked = LLM(**settings), place(), []
    for way in (chat, LLM(stream=True, **settings)):
        text = way.call(SUM)
        assert "42" in text, text
    typed = LLM(response_format=kind, **settings).call(PLACE)
    assert isinstance(typed, kind) or kind.model_validate_json(typed), typed
    agent = Agent(role="weather", goal="Be brief", backstory="Kind.", llm=chat, tools=[tool("get_weather")(weather(asked))], max_iter=3,
                  max_retry_limit=0)
    crew = Crew(agents=[agent], tasks=[Task(description=QUESTION, expected_output="a short answer", agent=agent)])
    text = crew.kickoff().raw
    # The prompt that crewai adds to a result is beyond the shipped model, which may call again.
    assert asked[0] == "Paris" and "21" in text, (asked, text)


def dspy(url, model):
    """Text, a typed field and a call, as a provider that is declared to take schemas and tools; undeclared it is sent neither."""
    import dspy
    from dspy.lm15 import AccessPolicy, ModelSupport, OpenAIChatCompat, ProviderDefinition, register_provider
    service = ProviderDefinition.chat(AccessPolicy("chimere", base_url=url), compat=OpenAIChatCompat(), placeholder_key="none")
    register_provider(service, supports=ModelSupport(function_calling=True, response_schema=True))
    chat, kind = dspy.LM(f"chimere/{model}", temperature=0, max_tokens=500, cache=False), place()
    text = chat(SUM)[0]["text"]
    assert "42" in text, text

    class Typed(dspy.Signature):
        text: str = dspy.InputField()
        place: kind = dspy.OutputField()

    class Called(dspy.Signature):
        question: str = dspy.InputField()
        tools: list[dspy.Tool] = dspy.InputField()
        calls: dspy.ToolCalls = dspy.OutputField()

    with dspy.context(lm=chat, adapter=dspy.JSONAdapter()):
        made = dspy.Predict(Typed)(text=PLACE).place
    assert isinstance(made, kind), made
    # The prompt around it is beyond the shipped model, which calls no tool there by itself.
    with dspy.context(lm=chat, adapter=dspy.ChatAdapter(use_native_function_calling=True)):
        made = dspy.Predict(Called)(question=QUESTION, tools=[dspy.Tool(weather([]))], config={"tool_choice": "required"}).calls
    assert (made.tool_calls[0].name, made.tool_calls[0].args) == ("get_weather", {"city": "Paris"}), made
