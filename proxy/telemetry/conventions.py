"""Names of the OpenTelemetry semantic conventions, pinned at version 1.41.1.

Source: the documents `docs/gen-ai/gen-ai-spans.md` and `docs/gen-ai/gen-ai-events.md` of
open-telemetry/semantic-conventions at its tag v1.41.1, the last one that contains the conventions
for generative AI (status: development). They moved to open-telemetry/semantic-conventions-genai,
which has no release yet. Names that begin with `ajet.` are this program's own.
"""

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.41.1"

# --- spans of an inference: gen-ai-spans.md, "Inference"

OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_TOP_K: Final = "gen_ai.request.top_k"
REQUEST_FREQUENCY_PENALTY: Final = "gen_ai.request.frequency_penalty"
REQUEST_PRESENCE_PENALTY: Final = "gen_ai.request.presence_penalty"
REQUEST_STOP_SEQUENCES: Final = "gen_ai.request.stop_sequences"
REQUEST_SEED: Final = "gen_ai.request.seed"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"

CHAT: Final = "chat"
"""Value of `OPERATION_NAME`."""
PROVIDER: Final = "agentjet"
"""Value of `PROVIDER_NAME`: none of the listed providers applies to a swarm server."""

# --- results of an evaluation: gen-ai-events.md, "Event: gen_ai.evaluation.result"

EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE_VALUE: Final = "gen_ai.evaluation.score.value"
EVALUATION_SCORE_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"

# --- this program's own

REQUEST_SPAN: Final = "ajet.request"
SCORE_SPAN: Final = "ajet.score"
UPDATE_SPAN: Final = "ajet.weight_update"

SERVER: Final = "ajet.server"
GROUP: Final = "ajet.group.id"
REQUEST: Final = "ajet.request.id"
EPISODE_TYPE: Final = "ajet.episode.type"
EPISODE: Final = "ajet.episode.id"
CANDIDATE: Final = "ajet.candidate.index"
CANDIDATES: Final = "ajet.candidates"
ATTEMPT: Final = "ajet.candidate.attempt"
STEP: Final = "ajet.step"
RUN: Final = "ajet.run"
PHASE: Final = "ajet.phase"
CAUSE: Final = "ajet.cause"
RETURNED: Final = "ajet.returned.index"
RETURNED_WHY: Final = "ajet.returned.why"
REWARD: Final = "ajet.reward"
ADVANTAGE: Final = "ajet.advantage"
REWARD_VERSION: Final = "ajet.reward.version"
REWARD_SOURCE: Final = "ajet.reward.source"
LATENCY: Final = "ajet.seconds."
"""Followed by the name of a phase, see `core.events.GroupClosed.latency`."""
UPDATE: Final = "ajet.update."
"""Followed by the name of a figure, see `core.events.UpdateDone.stats`."""
