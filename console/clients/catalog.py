"""What to write where, so that a client asks the fake vLLM: one table, which `clients` prints."""

from console.clients.programs import PROGRAMS
from console.clients.snippets import Client, Snippet, client

_OPENAI_ENV = Snippet(
    "sh",
    """\
export OPENAI_BASE_URL=%BASE%/v1
export OPENAI_API_KEY=%KEY%""",
)

LIBRARIES = (
    client(
        "openai",
        "openai (Python)",
        "chat, completions, responses",
        Snippet(
            "python",
            """\
from openai import OpenAI

client = OpenAI(base_url="%BASE%/v1", api_key="%KEY%")
asked = [{"role": "user", "content": "Say hello."}]
answer = client.chat.completions.create(model="%MODEL%", messages=asked)
print(answer.choices[0].message.content)""",
        ),
        _OPENAI_ENV,
        note="The two variables are enough where a program makes its client without arguments.",
    ),
    client(
        "openai-js",
        "openai (JavaScript)",
        "chat, completions, responses",
        Snippet(
            "js",
            """\
import OpenAI from "openai";

const client = new OpenAI({ baseURL: "%BASE%/v1", apiKey: "%KEY%" });
const messages = [{ role: "user", content: "Say hello." }];
const answer = await client.chat.completions.create({ model: "%MODEL%", messages });
console.log(answer.choices[0].message.content);""",
        ),
    ),
    client(
        "anthropic",
        "anthropic (Python)",
        "messages",
        Snippet(
            "python",
            """\
from anthropic import Anthropic

client = Anthropic(base_url="%BASE%", api_key="%KEY%")
asked = [{"role": "user", "content": "Say hello."}]
answer = client.messages.create(model="%MODEL%", max_tokens=1024, messages=asked)
print(answer.content[0].text)""",
        ),
        note="No `/v1` at the end of its address.",
    ),
    client(
        "anthropic-js",
        "@anthropic-ai/sdk",
        "messages",
        Snippet(
            "js",
            """\
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: "%BASE%", apiKey: "%KEY%" });
const messages = [{ role: "user", content: "Say hello." }];
const answer = await client.messages.create({ model: "%MODEL%", max_tokens: 1024, messages });
console.log(answer.content[0].text);""",
        ),
        note="No `/v1` at the end of its address.",
    ),
    client(
        "ai-sdk",
        "Vercel AI SDK",
        "chat, responses, messages",
        Snippet(
            "js",
            """\
import { generateText } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";

const ajet = createOpenAICompatible({
  name: "ajet", baseURL: "%BASE%/v1", apiKey: "%KEY%",
  includeUsage: true, supportsStructuredOutputs: true,
});
console.log((await generateText({ model: ajet("%MODEL%"), prompt: "Say hello." })).text);""",
        ),
        note="`createOpenAI` asks `/v1/responses`, `createAnthropic` wants the `/v1` too.",
    ),
    client(
        "litellm",
        "LiteLLM",
        "chat, messages",
        Snippet(
            "python",
            """\
import litellm

asked = [{"role": "user", "content": "Say hello."}]
answer = litellm.completion(
    model="hosted_vllm/%MODEL%", api_base="%BASE%/v1", api_key="%KEY%", messages=asked
)
print(answer.choices[0].message.content)""",
        ),
        note="`openai/` does the same; `anthropic/` wants the address without `/v1`.",
    ),
    client(
        "langchain",
        "langchain-openai",
        "chat, responses",
        Snippet(
            "python",
            """\
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(
    model="%MODEL%", base_url="%BASE%/v1", api_key="%KEY%", stream_usage=True
)
print(llm.invoke("Say hello.").text)""",
        ),
    ),
    client(
        "agentscope",
        "AgentScope",
        "chat",
        Snippet(
            "python",
            """\
from agentscope.credential import OpenAICredential
from agentscope.model import OpenAIChatModel

credential = OpenAICredential(api_key="%KEY%", base_url="%BASE%/v1")
model = OpenAIChatModel(credential=credential, model="%MODEL%", stream=True)""",
        ),
    ),
    client(
        "llm",
        "llm",
        "chat",
        Snippet(
            "yaml",
            """\
- model_id: ajet
  model_name: %MODEL%
  api_base: %BASE%/v1
  api_key_name: ajet
  supports_tools: true""",
            file="~/.config/io.datasette.llm/extra-openai-models.yaml",
        ),
        Snippet("sh", "llm -m ajet --key %KEY% 'Say hello.'"),
    ),
)

CLIENTS = (*LIBRARIES, *PROGRAMS)
"""Libraries first."""


def find(name: str) -> tuple[Client, ...]:
    """Return the client of that name, else those whose names begin with it."""
    exact = tuple(entry for entry in CLIENTS if entry.name == name)
    return exact or tuple(entry for entry in CLIENTS if entry.name.startswith(name))
