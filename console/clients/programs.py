"""What to set so that programs (agents, chat pages, benches) ask the fake vLLM."""

from console.clients.snippets import Snippet, client

PROGRAMS = (
    client(
        "aider",
        "aider",
        "chat",
        Snippet(
            "sh",
            """\
export OPENAI_API_BASE=%BASE%/v1
export OPENAI_API_KEY=%KEY%
aider --model openai/%MODEL%""",
        ),
    ),
    client(
        "opencode",
        "opencode",
        "chat",
        Snippet(
            "json",
            """\
{
  "$schema": "https://opencode.ai/config.json",
  "model": "ajet/%MODEL%",
  "provider": {
    "ajet": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "ajet-console",
      "options": { "baseURL": "%BASE%/v1", "apiKey": "%KEY%" },
      "models": { "%MODEL%": { "limit": { "context": %CONTEXT%, "output": %OUTPUT% } } }
    }
  }
}""",
            file="~/.config/opencode/opencode.json",
        ),
    ),
    client(
        "codex",
        "Codex",
        "responses",
        Snippet(
            "toml",
            """\
model = "%MODEL%"
model_provider = "ajet"

[model_providers.ajet]
name = "ajet-console"
base_url = "%BASE%/v1"
wire_api = "responses"
env_key = "AJET_KEY\"""",
            file="~/.codex/config.toml",
        ),
        Snippet("sh", "export AJET_KEY=%KEY%"),
    ),
    client(
        "claude-code",
        "Claude Code",
        "messages",
        Snippet(
            "sh",
            """\
export ANTHROPIC_BASE_URL=%BASE%
export ANTHROPIC_AUTH_TOKEN=%KEY%
export ANTHROPIC_MODEL=%MODEL%
export ANTHROPIC_SMALL_FAST_MODEL=%MODEL%
export ANTHROPIC_DEFAULT_SONNET_MODEL=%MODEL%
export ANTHROPIC_DEFAULT_OPUS_MODEL=%MODEL%
export ANTHROPIC_DEFAULT_HAIKU_MODEL=%MODEL%
export CLAUDE_CODE_MAX_CONTEXT_TOKENS=%CONTEXT%
claude""",
        ),
        note="No `/v1` at the end of its address. `CLAUDE_CODE_MAX_CONTEXT_TOKENS` is your "
        "policy's window: unset, it assumes 1m tokens. In auto mode risky calls are judged by the "
        "Sonnet model.",
    ),
    client(
        "openclaw",
        "OpenClaw",
        "chat",
        Snippet(
            "json",
            """\
{
  "agents": { "defaults": { "model": { "primary": "ajet/%MODEL%" } } },
  "models": {
    "mode": "merge",
    "providers": {
      "ajet": {
        "baseUrl": "%BASE%/v1",
        "apiKey": "%KEY%",
        "api": "openai-completions",
        "timeoutSeconds": 600,
        "models": [
          { "id": "%MODEL%", "name": "%MODEL%", "contextWindow": %CONTEXT%, "maxTokens": %OUTPUT% }
        ]
      }
    }
  }
}""",
            file="~/.openclaw/openclaw.json",
        ),
        note="It needs a newer node than most. `timeoutSeconds` lets slow rewards take their time.",
    ),
    client(
        "pi",
        "pi",
        "chat",
        Snippet(
            "json",
            """\
{
  "providers": {
    "ajet": {
      "baseUrl": "%BASE%/v1",
      "apiKey": "%KEY%",
      "api": "openai-completions",
      "models": [ { "id": "%MODEL%", "contextWindow": %CONTEXT%, "maxTokens": %OUTPUT% } ]
    }
  }
}""",
            file="~/.pi/agent/models.json",
        ),
        Snippet("sh", "pi --provider ajet --model %MODEL%"),
    ),
    client(
        "qwen-code",
        "qwen-code",
        "chat",
        Snippet(
            "sh",
            """\
export OPENAI_BASE_URL=%BASE%/v1
export OPENAI_API_KEY=%KEY%
export OPENAI_MODEL=%MODEL%
qwen --auth-type openai""",
        ),
        note="It gives up when no answer has begun after 120 s; ours begins at once.",
    ),
    client(
        "cline",
        "cline",
        "chat",
        Snippet(
            "sh",
            """\
cline auth -p openai-compatible -k %KEY% -b %BASE%/v1 -m %MODEL%
cline 'Say hello.'""",
        ),
    ),
    client(
        "open-webui",
        "Open WebUI",
        "chat",
        Snippet(
            "sh",
            """\
export OPENAI_API_BASE_URL=%BASE%/v1
export OPENAI_API_KEY=%KEY%
export ENABLE_OLLAMA_API=false
open-webui serve""",
        ),
        note="It offers what `/v1/models` lists. Its titles, tags and follow-ups are helper calls.",
    ),
    client(
        "chainlit",
        "Chainlit",
        "chat",
        Snippet(
            "python",
            """\
import chainlit
from openai import AsyncOpenAI

client = AsyncOpenAI(base_url="%BASE%/v1", api_key="%KEY%")


@chainlit.on_message
async def answer(message):
    reply = chainlit.Message(content="")
    async for chunk in await client.chat.completions.create(
        model="%MODEL%", messages=chainlit.chat_context.to_openai(), stream=True
    ):
        if chunk.choices:
            await reply.stream_token(chunk.choices[0].delta.content or "")
    await reply.send()""",
            file="app.py",
        ),
    ),
    client(
        "vllm-bench",
        "vllm bench serve",
        "chat",
        Snippet(
            "sh",
            """\
OPENAI_API_KEY=%KEY% vllm bench serve --backend openai-chat --base-url %BASE% \\
  --endpoint /v1/chat/completions --model %MODEL% --tokenizer gpt2 --num-prompts 20""",
        ),
    ),
    client(
        "guidellm",
        "guidellm",
        "chat",
        Snippet(
            "sh",
            """\
guidellm run --backend kind=openai_http,target=%BASE%,model=%MODEL%,api_key=%KEY% \\
  --profile kind=concurrent,streams=4 --constraint kind=max_duration,seconds=30 \\
  --tokenizer kind=huggingface_auto,model=gpt2 \\
  --data kind=synthetic_text,prompt_tokens=64,output_tokens=32""",
        ),
        note="A folder with a tokenizer will do for `gpt2`, with `HF_HUB_OFFLINE=1`. Equal prompts "
        "are answered once while they are in flight: the header `X-Ajet-Join: no` asks each.",
    ),
    client(
        "curl",
        "curl",
        "chat",
        Snippet(
            "sh",
            """\
curl %BASE%/v1/chat/completions -H 'Authorization: Bearer %KEY%' \\
  -H 'Content-Type: application/json' \\
  -d '{"model": "%MODEL%", "messages": [{"role": "user", "content": "Say hello."}]}'""",
        ),
    ),
)
