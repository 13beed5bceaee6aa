-- Memory in use is not collected: tests that test.lua takes in.
local moe = require "moe"

return function(tests, with)
  local golden, qwen3, that, near, nan, workspace_of =
    with.golden, with.qwen3, with.that, with.near, with.nan, with.workspace_of

  -- Says whether the garbage has taken what is given.
  local function watch(...)
    local seen = setmetatable({...}, {__mode = "v"})
    return function()
      collectgarbage()
      collectgarbage()
      return next(seen) == nil
    end
  end

  tests["mapping"] = function()
    local g = golden(qwen3)
    local checkpoint = moe.Checkpoint(nil, g.path, nil)
    local gone, one = watch(checkpoint), checkpoint:tensor_of_index(g.layer, 1)
    local format = one.format
    checkpoint = nil
    that(not gone(), "a tensor does not keep its checkpoint")
    local out = nan(one.rows * one.columns * math.max(one.n_experts, 1))
    moe.dequantize(one, 0, out, one.rows * one.columns)
    that(out:get(1) == out:get(1), "not a number")
    one = nil
    that(not gone() and format.type == moe.MOE_TYPE_BF16, "a format does not keep the tensor that it is in")
    format = nil
    that(gone(), "the checkpoint stays")
  end

  local function tensors_of(checkpoint, layer)
    local all = {}
    while true do
      local good, one = pcall(checkpoint.tensor_of_index, checkpoint, layer, #all)
      if not good then return all end
      all[#all + 1] = one
    end
  end

  tests["borrowed"] = function()
    for _, ownership in ipairs {moe.MOE_OWN_COPY, moe.MOE_OWN_BORROW} do
      local g, desc = golden(qwen3), moe.WeightsDesc()
      local all, borrows = tensors_of(g.checkpoint, g.layer), ownership == moe.MOE_OWN_BORROW
      desc.ownership = ownership
      for _, one in ipairs(all) do desc:add_tensor(one) end
      local weights = moe.Weights.of_tensors(g.plan, desc)
      local again = moe.Checkpoint(nil, g.path, nil)
      local mapping = watch(again)
      for _, one in ipairs(tensors_of(again, g.layer)) do moe.weights_update(weights, one, 0) end
      local first = watch(desc, table.unpack(all))
      again, desc, all, g.checkpoint = nil, nil, nil, nil
      that(mapping() ~= borrows and first() ~= borrows, "what weights of ownership " .. ownership .. " borrow from")
      local out = nan(g.y.count)
      moe.forward(g.plan, weights, g.workspace, g:args {out = out})
      near(out, g.y, g.tokens, 1e-5)
      for index = 1, 2 do
        local other = moe.Checkpoint(nil, g.path, nil)
        local before = mapping
        mapping = watch(other)
        for _, one in ipairs(tensors_of(other, g.layer)) do moe.weights_update(weights, one, 0) end
        other = nil
        that(before() and mapping() ~= borrows, "update " .. index)
      end
      weights = nil
      that(mapping() and first(), "what was borrowed stays")
    end
  end

  -- What is given to a struct later is not what the weights borrowed from.
  tests["reused"] = function()
    local g, desc = golden(qwen3), moe.WeightsDesc()
    local tensors, gone = tensors_of(g.checkpoint, g.layer), {}
    desc.ownership = moe.MOE_OWN_BORROW
    for i, one in ipairs(tensors) do
      local bytes = moe.Buffer(moe.MOE_TYPE_U8, one.data_bytes)
      gone[i], one.data = watch(bytes), bytes
      desc:add_tensor(one)
    end
    local weights = moe.Weights.of_tensors(g.plan, desc)
    for _, one in ipairs(tensors) do one.data = nil end
    for _, is_gone in ipairs(gone) do that(not is_gone(), "borrowed bytes are collected") end
    moe.close(weights)
  end

  tests["memory"] = function()
    local g, options = golden(qwen3), moe.LoadOptions()
    local report = moe.MemoryReport()
    moe.weights_memory(g.loaded, report)
    local bytes, need = moe.Buffer(moe.MOE_TYPE_U8, report.host_bytes), moe.WorkspaceNeed()
    local of_weights = watch(bytes)
    options.ownership, options.memory, options.memory_bytes = moe.MOE_OWN_CALLER, bytes, bytes:bytes()
    local weights = moe.Weights.of_checkpoint(g.plan, g.checkpoint, g.layer, options)
    moe.plan_workspace_size(g.plan, 64, need)
    local scratch, desc = moe.Buffer(moe.MOE_TYPE_U8, need.host_bytes), moe.WorkspaceDesc()
    local of_workspace = watch(scratch)
    desc.plan, desc.host_memory, desc.host_bytes = g.plan, scratch, scratch:bytes()
    local workspace = moe.Workspace(nil, desc)
    options, bytes, scratch, desc = nil, nil, nil, nil
    that(not of_weights() and not of_workspace(), "memory in use is collected")
    local out = nan(g.y.count)
    moe.forward(g.plan, weights, workspace, g:args {out = out})
    near(out, g.y, g.tokens, 1e-5)
    local plan = moe.Plan(nil, g:desc())
    local of_plan, other = watch(plan), workspace_of(plan)
    plan = nil
    that(of_plan() and other, "a workspace keeps a plan")
    weights, workspace = nil, nil
    that(of_weights() and of_workspace(), "memory stays")
    for count = 0, 70 do
      local buffer = moe.Buffer(moe.MOE_TYPE_I64, count)
      for i = 1, count do that(buffer:get(i) == 0, "not zero") end
      buffer:fill(("\xff"):rep(8 * count))
    end
  end
end
