// The limits are those of this client's own file (`limit.input`); the engine counts. A text has no more tokens than
// bytes, so short requests are not counted at all, and what the engine cannot count it is asked as it is.

export const RigdGuard = async () => ({
  config: async (config) => {
    for (const name of PROVIDERS) {
      const provider = config.provider?.[name]
      if (provider?.options?.baseURL) provider.options.fetch = guarded(name, provider, provider.options.fetch ?? fetch)
    }
  },
})

function guarded(name, provider, send) {
  const refusedBefore = new Set()
  return async (address, init) => {
    const text = typeof init?.body === "string" ? init.body : "{}"
    const request = JSON.parse(text)
    const limit = provider.models?.[request.model]?.limit?.input
    const session = `${new Headers(init?.headers).get("x-session-id")} ${Boolean(request.tools?.length)}`
    if (limit && new TextEncoder().encode(text).length > limit) {
      const tokens = await counted(provider.options.baseURL, request, init)
      if (tokens > limit) {
        // The client sums up and tries again, for ever if that does not help: so every second refusal is a final one.
        const final = refusedBefore.delete(session)
        if (!final) refusedBefore.add(session)
        return refused(name, limit, tokens, final)
      }
    }
    refusedBefore.delete(session)
    return send(address, init)
  }
}

async function counted(base, { model, messages, tools }, { headers, signal }) {
  const own = new Headers(headers)
  own.delete("content-length")
  try {
    const body = JSON.stringify({ model, messages, tools })
    const answer = await fetch(`${base.replace(/\/v1\/?$/, "")}/tokenize`, { method: "POST", headers: own, signal, body })
    return (await answer.json()).count ?? 0
  } catch {
    return 0
  }
}

function refused(name, limit, tokens, final) {
  const whole = `${name}: its maximum context length is ${limit} tokens, and this prompt has ${tokens}`
  const spent = `${name} holds ${limit} tokens, and summed up this prompt still has ${tokens}: send less of it at once`
  const error = { message: final ? spent : whole, type: "rigd", param: null, code: final ? "refused" : "context_length_exceeded" }
  return new Response(JSON.stringify({ error }), { status: 400, headers: { "content-type": "application/json" } })
}
