-- The Lua that SWIG makes, case by case of bindings/conformance: it says "pass ID" or "fail ID why".
-- usage: test.lua ROOT FOLDER, where FOLDER gets the explanations, for results.py to look at
local moe = require "moe"
local root, folder = arg[1], arg[2]
local qwen3 = "tests/oracle/fixtures/qwen3_moe_bf16"

-- What tests ask.

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("a")
  file:close()
  return text
end

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

local function that(is_true, what)
  if not is_true then error(tostring(what), 2) end
end

local function fails(status, run, ...)
  local good, problem = pcall(run)
  that(not good, "no error of status " .. status)
  that(type(problem) == "table" and problem.status == status, problem)
  for _, word in ipairs {...} do
    that(tostring(problem):find(word, 1, true), word .. " in " .. tostring(problem))
  end
  return problem
end

-- What stands behind a key of a case in cases.toml.
local cases = read(root .. "/bindings/conformance/cases.toml")
local function data(name, key)
  local begin = assert(cases:find('id = "' .. name .. '"', 1, true), name)
  local section = cases:sub(begin, (cases:find("[[case]]", begin, true) or 0) - 1)
  return assert(section:match("\n" .. key .. " = ([^#\n]*)"), name .. " has no " .. key)
end

local function whole(name, key) return math.tointeger(tonumber(data(name, key):match("%S+"))) end
local function real(name, key) return tonumber(data(name, key):match("%S+")) end
local function inside(text, key) return math.tointeger(tonumber(text:match("%f[%w_]" .. key .. " = (-?%d+)"))) end

local function texts(name, key)
  local found = {}
  for one in data(name, key):gmatch('"([^"]*)"') do found[#found + 1] = one end
  return found
end

local function contains(all, wanted)
  local set = {}
  for _, one in ipairs(all) do set[one] = true end
  for _, one in ipairs(wanted) do that(set[one], one .. " is missing") end
end

local function nan(n)
  local made = moe.Buffer(moe.MOE_TYPE_F32, n)
  for i = 1, n do made:set(i, 0 / 0) end
  return made
end

-- The largest over rows of |got - wanted| / |wanted|; NaN is infinite, and zeros are one.
local function near(got, wanted, rows, limit)
  that(got.count == wanted.count and rows > 0, "sizes")
  local width, worst = got.count // rows, 0
  for row = 0, rows - 1 do
    local difference, norm = 0, 0
    for i = row * width + 1, (row + 1) * width do
      difference = difference + (got:get(i) - wanted:get(i)) ^ 2
      norm = norm + wanted:get(i) ^ 2
    end
    that(norm > 0, "a row that is wanted is zero")
    local found = math.sqrt(difference / norm)
    worst = found == found and math.max(worst, found) or math.huge
  end
  that(worst <= limit, "relative L2 " .. worst .. ", more than " .. limit)
end

local function same(got, wanted)
  if got.count ~= wanted.count then return false end
  for i = 1, got.count do
    if got:get(i) ~= wanted:get(i) then return false end
  end
  return true
end

-- The values of a .npy file of version 1.
local function npy(path, type)
  local file = read(path)
  local size = string.unpack("<I2", file, 9)
  local rows, columns = file:sub(11, 10 + size):match("'descr': '<[fi]4', 'fortran_order': False, 'shape': %((%d+), (%d+)%)")
  rows, columns = assert(math.tointeger(tonumber(rows)), path), math.tointeger(tonumber(columns))
  local made = moe.Buffer(type, rows * columns)
  made:fill(file:sub(11 + size))
  return made, rows, columns
end

local function workspace_of(plan)
  local desc = moe.WorkspaceDesc()
  desc.plan = plan
  return moe.Workspace(nil, desc)
end

local Golden = {}
Golden.__index = Golden

-- A fixture of tests/oracle with a handle of each kind.
local function golden(name)
  local at, g = root .. "/" .. name, setmetatable({}, Golden)
  local gguf = io.open(at .. "/model.gguf")
  if gguf then gguf:close() end
  g.path = gguf and at .. "/model.gguf" or at
  g.layer = math.tointeger(tonumber(read(at .. "/case.json"):match('"layer": (%d+)')))
  g.x, g.tokens, g.hidden = npy(at .. "/x.npy", moe.MOE_TYPE_F32)
  g.y = npy(at .. "/y.npy", moe.MOE_TYPE_F32)
  g.weights, g.tokens, g.top_k = npy(at .. "/weights.npy", moe.MOE_TYPE_F32)
  g.ids = npy(at .. "/ids.npy", moe.MOE_TYPE_I32)
  g.checkpoint = moe.Checkpoint(nil, g.path, nil)
  g.plan = moe.Plan(nil, g:desc())
  g.loaded = moe.Weights.of_checkpoint(g.plan, g.checkpoint, g.layer, nil)
  g.workspace = workspace_of(g.plan)
  return g
end

function Golden:desc()
  local desc = moe.PlanDesc()
  desc.checkpoint, desc.checkpoint_layer = self.checkpoint, self.layer
  desc.device, desc.x_type, desc.max_tokens = moe.MOE_DEVICE_CPU, moe.MOE_TYPE_F32, 64
  return desc
end

function Golden:args(fields)
  local args = moe.ForwardArgs()
  args.n_tokens, args.x = self.tokens, self.x
  for name, value in pairs(fields or {}) do args[name] = value end
  return args
end

function Golden:given(ids)
  return self:args {routing = moe.MOE_ROUTING_IDS_AND_WEIGHTS, ids = ids, weights = self.weights}
end

function Golden:forward(args)
  local out = nan(self.y.count)
  args = args or self:args()
  args.out = out
  collectgarbage()
  moe.forward(self.plan, self.loaded, self.workspace, args)
  return out
end

function Golden:n_experts()
  local layer = moe.LayerDesc()
  moe.checkpoint_layer(self.checkpoint, self.layer, layer)
  return layer.n_experts
end

-- The cases.

local tests = {}

tests["ERR-01"] = function()
  local table, count = data("ERR-01", "statuses"), 0
  for name, number in table:gmatch("([%u_]+) = (-%d+)") do
    number, count = math.tointeger(tonumber(number)), count + 1
    that(moe["MOE_ERROR_" .. name] == number, name)
    that(fails(number, function() moe.check(number) end, tostring(number)).name == "MOE_ERROR_" .. name, name)
  end
  that(count == 17, count)
  fails(moe.MOE_ERROR_INVALID_ARGUMENT, function() moe.layer_validate(moe.LayerDesc()) end)
  fails(moe.MOE_ERROR_NOT_FOUND, function() moe.format_by_name("no such format", moe.Format()) end, "no such format")
  fails(moe.MOE_ERROR_IO, function() moe.Checkpoint(nil, "/no/such/folder", nil) end)
end

tests["ERR-02"] = function()
  local number = whole("ERR-02", "unknown_status")
  local problem = fails(number, function() moe.check(number) end, tostring(number))
  that(problem.name == texts("ERR-02", "unknown_name")[1], problem)
end

tests["ERR-03"] = function()
  local bad, layer = data("ERR-03", "bad_layer"), moe.LayerDesc()
  for _, name in ipairs {"hidden", "intermediate", "n_experts", "top_k", "activation", "is_gated"} do
    layer[name] = inside(bad, name)
  end
  fails(moe.MOE_ERROR_INVALID_ARGUMENT, function() moe.layer_validate(layer) end, table.unpack(texts("ERR-03", "message_has")))
  local file = texts("ERR-03", "absent_file")[1]
  local problem = fails(moe.MOE_ERROR_IO, function() moe.Checkpoint(nil, file, nil) end, file)
  that(problem.name == "MOE_ERROR_IO" and problem.message:find(file, 1, true), problem)
  fails(moe.MOE_ERROR_INVALID_ARGUMENT, function() moe.PlanDesc():set_format(99, moe.Format()) end, "role")
end

tests["VER-01"] = function()
  that(moe.abi_version() == whole("VER-01", "abi_version") and moe.abi_version() == moe.MOE_ABI_VERSION, moe.abi_version())
  that(moe.version() == moe.MOE_VERSION_NUMBER, moe.version())
  that(moe.build_info():find(texts("VER-01", "build_info_has")[1] .. moe.version_string(), 1, true), moe.build_info())
end

tests["LIFE-01"] = function()
  local g = golden(qwen3)
  local all = {moe.Runtime(moe.RuntimeDesc()), g.checkpoint, g.plan, g.loaded, g.workspace}
  that(#all == #texts("LIFE-01", "handles"), #all)
  for _, one in ipairs(all) do
    moe.close(one)
    moe.close(one)
  end
  collectgarbage()
end

tests["LIFE-02"] = function()
  local g, living, runtime = golden(qwen3), golden(qwen3), moe.Runtime(nil)
  for _, one in ipairs {runtime, g.checkpoint, g.plan, g.loaded, g.workspace} do moe.close(one) end
  local args = living:args {out = moe.Buffer(moe.MOE_TYPE_F32, g.y.count)}
  local function closed(run) fails(moe.MOE_ERROR_INVALID_ARGUMENT, run, "closed") end
  closed(function() moe.Checkpoint(runtime, g.path, nil) end)
  closed(function() g.checkpoint:layer_of_index(0) end)
  closed(function() g:desc() end)
  closed(function() g.plan:explanation(moe.MOE_EXPLAIN_TEXT) end)
  closed(function() moe.weights_memory(g.loaded, moe.MemoryReport()) end)
  closed(function() moe.workspace_status(g.workspace, moe.WorkspaceFaults()) end)
  closed(function() moe.forward(g.plan, living.loaded, living.workspace, args) end)
  closed(function() moe.forward(living.plan, g.loaded, living.workspace, args) end)
  closed(function() moe.forward(living.plan, living.loaded, g.workspace, args) end)
end

tests["LIFE-03"] = function()
  for _, ownership in ipairs {moe.MOE_OWN_COPY, moe.MOE_OWN_BORROW} do
    local g, two = golden(texts("LIFE-03", "fixture")[1]), moe.RuntimeDesc()
    two.n_threads = 2
    local runtime = moe.Runtime(two)
    local first, second = moe.Plan(runtime, g:desc()), moe.Plan(runtime, g:desc())
    local options = moe.LoadOptions()
    options.ownership = ownership
    local weights = moe.Weights.of_checkpoint(first, g.checkpoint, g.layer, options)
    moe.close(runtime)
    moe.close(g.checkpoint)
    moe.close(first)
    local workspace, out = workspace_of(second), nan(g.y.count)
    moe.forward(second, weights, workspace, g:args {out = out})
    near(out, g.y, g.tokens, real("LIFE-03", "relative_l2"))
    moe.close(weights)
    moe.close(second)
    moe.close(workspace)
  end
end

tests["BIG-01"] = function()
  local g, stride = golden(texts("BIG-01", "fixture")[1]), whole("BIG-01", "row_stride")
  local far, dense, out = moe.Buffer(moe.MOE_TYPE_F32, stride + g.hidden), nan(2 * g.hidden), nan(2 * g.hidden)
  for i = 1, g.hidden do
    far:set(i, g.x:get(i))
    far:set(stride + i, g.x:get(g.hidden + i))
  end
  moe.forward(g.plan, g.loaded, g.workspace, g:args {n_tokens = 2, out = dense})
  moe.forward(g.plan, g.loaded, g.workspace, g:args {n_tokens = 2, x = far, x_row_stride = stride, out = out})
  that(same(out, dense), "rows far apart give something else")
  local wanted = moe.buffer_of(moe.MOE_TYPE_F32, {table.unpack(moe.table_of(g.y), 1, 2 * g.hidden)})
  near(out, wanted, 2, 1e-5)
end

tests["BIG-02"] = function()
  local format, columns, many = moe.Format(), whole("BIG-02", "columns"), whole("BIG-02", "overflowing_rows")
  moe.format_by_name(texts("BIG-02", "format")[1], format)
  that(format:data_bytes(whole("BIG-02", "rows"), columns) == whole("BIG-02", "data_bytes"), "bytes")
  fails(moe.MOE_ERROR_INVALID_ARGUMENT, function() format:data_bytes(many, columns) end, tostring(many))
  local desc = golden(qwen3):desc()
  desc.max_tokens = whole("BIG-02", "max_tokens")
  fails(moe.MOE_ERROR_INVALID_ARGUMENT, function() moe.Plan(nil, desc) end, "max_tokens is " .. desc.max_tokens)
end

tests["BAD-02"] = function()
  local g, faults = golden(qwen3), moe.WorkspaceFaults()
  local ids = moe.table_of(g.ids)
  ids[1] = 1 << 20
  local found = g:forward(g:given(moe.buffer_of(moe.MOE_TYPE_I32, ids)))
  moe.workspace_status(g.workspace, faults)
  that(faults.faults == whole("BAD-02", "fault") and faults.n_skipped == 1, faults.faults)
  moe.workspace_status(g.workspace, faults)
  that(faults.faults == 0, "not forgotten")
  ids[1] = -1
  that(same(found, g:forward(g:given(moe.buffer_of(moe.MOE_TYPE_I32, ids)))), "the others do not count")
end

tests["BAD-03"] = function()
  local source, copy = root .. "/" .. texts("BAD-03", "source")[1], folder .. "/damaged"
  os.execute('mkdir -p "' .. copy .. '"')
  write(copy .. "/config.json", read(source .. "/config.json"))
  write(copy .. "/model.safetensors", read(source .. "/model.safetensors"):sub(1, 100))
  fails(whole("BAD-03", "status"), function() moe.Checkpoint(nil, copy, nil) end, "model.safetensors")
end

tests["PLAN-01"] = function()
  local g = golden(qwen3)
  write(folder .. "/explain.json", g.plan:explanation(moe.MOE_EXPLAIN_JSON))
  that(g.plan:explanation(moe.MOE_EXPLAIN_TEXT):find "cpu", "text")
end

tests["PLAN-02"] = function()
  local g = golden(texts("PLAN-02", "fixture")[1])
  for name, type in pairs {f32 = moe.MOE_TYPE_F32, bf16 = moe.MOE_TYPE_BF16, f16 = moe.MOE_TYPE_F16} do
    local desc = moe.PlanDesc()
    desc.checkpoint, desc.checkpoint_layer = g.checkpoint, g.layer
    desc.x_type, desc.max_tokens, desc.device = type, 1, moe.MOE_DEVICE_CPU
    local plan = moe.Plan(nil, desc)
    write(folder .. "/explain-" .. name .. ".json", plan:explanation(moe.MOE_EXPLAIN_JSON))
    that(plan:device_kind() == moe.MOE_DEVICE_CPU and #plan:device_reason() > 0, plan:device_reason())
  end
end

tests["PLAN-03"] = function()
  local g = golden(qwen3)
  local larger, key = g:desc(), moe.Plan.key_of(nil, g:desc())
  larger.max_tokens = 65
  that(#key == 32 and key == moe.Plan.key_of(nil, g:desc()) and key ~= moe.Plan.key_of(nil, larger), key)
  local layout = g.plan:layout()
  that(moe.Plan(nil, larger):layout() == layout and g.loaded:layout() == layout, layout)
  that(g.plan:explanation(moe.MOE_EXPLAIN_JSON):find(key, 1, true), key)
end

tests["PLAN-04"] = function()
  local g = golden(qwen3)
  for name, stage in data("PLAN-04", "stages"):gmatch "(%l+) = (%d+)" do
    stage = math.tointeger(tonumber(stage))
    local one, index, chosen = moe.Candidate(), 0, 0
    while pcall(moe.candidates, g.plan, index, one) do
      if one.stage == stage and one.chosen == 1 then
        chosen = chosen + 1
        that(one.kernel == g.plan:kernel_of(stage, 1) and one.reason_code == "chosen", one.kernel)
      end
      index = index + 1
    end
    that(chosen == 1, name)
    fails(moe.MOE_ERROR_NOT_FOUND, function() moe.candidates(g.plan, index, one) end)
  end
  local desc = g:desc()
  desc.kernel_filter = "no_such_kernel"
  fails(moe.MOE_ERROR_INVALID_ARGUMENT, function() moe.supports(nil, desc) end, "no_such_kernel")
end

tests["PLAN-05"] = function()
  local g, number, layer = golden(qwen3), whole("PLAN-05", "unknown_value"), moe.LayerDesc()
  local desc = g:desc()
  desc.residency = number
  fails(moe.MOE_ERROR_INVALID_ARGUMENT, function() moe.supports(nil, desc) end, tostring(number))
  moe.checkpoint_layer(g.checkpoint, g.layer, layer)
  layer.activation = number
  fails(moe.MOE_ERROR_INVALID_ARGUMENT, function() moe.layer_validate(layer) end, tostring(number))
  that(layer.activation == number and moe.type_name(number) == "unknown", layer.activation)
end

local function listed(name_at)
  local names = {}
  while name_at(#names) do names[#names + 1] = name_at(#names) end
  return names
end

tests["LIST-01"] = function()
  local names, size = listed(moe.format_name_at), data("LIST-01", "size")
  contains(names, texts("LIST-01", "formats"))
  for _, name in ipairs(names) do
    local format, info = moe.Format(), moe.FormatInfo()
    moe.format_by_name(name, format)
    moe.format_get_info(format, info)
    that(info.name == name and info.has_decode == 1 and info.bits_per_weight > 0, name)
  end
  local format = moe.Format()
  moe.format_by_name(size:match 'format = "([%w_]+)"', format)
  local rows, columns = inside(size, "rows"), inside(size, "columns")
  that(format:data_bytes(rows, columns) == inside(size, "data_bytes"), "bytes")
  that(format:scale_bytes(rows, columns) == inside(size, "scale_bytes"), "bytes of scales")
end

tests["LIST-02"] = function()
  contains(listed(moe.checkpoint_family_at), texts("LIST-02", "families"))
  local info = moe.DeviceInfo()
  moe.device_get_info(moe.MOE_DEVICE_CPU, 0, info)
  that(moe.device_count(moe.MOE_DEVICE_CPU) == 1 and info.n_cores > 0 and #info.name > 0, info.name)
end

tests["FWD-01"] = function()
  local limit = real("FWD-01", "relative_l2")
  for _, name in ipairs(texts("FWD-01", "fixtures")) do
    local g = golden("tests/oracle/fixtures/" .. name)
    local ids, weights = moe.Buffer(moe.MOE_TYPE_I32, g.ids.count), nan(g.weights.count)
    near(g:forward(g:args {out_ids = ids, out_weights = weights}), g.y, g.tokens, limit)
    near(weights, g.weights, g.tokens, limit)
    that(same(ids, g.ids), name)
  end
end

tests["FWD-02"] = function()
  local g = golden(texts("FWD-02", "fixture")[1])
  near(g:forward(g:given(g.ids)), g.y, g.tokens, real("FWD-02", "relative_l2"))
  local logits, ids = nan(g.tokens * g:n_experts()), moe.Buffer(moe.MOE_TYPE_I32, g.ids.count)
  local computed = g:forward(g:args {out_logits = logits})
  that(same(g:forward(g:args {routing = moe.MOE_ROUTING_LOGITS, logits = logits, out_ids = ids}), computed), "logits")
  that(same(ids, g.ids), "ids of logits")
  for i = 1, ids.count do ids:set(i, -1) end
  for _, value in ipairs(moe.table_of(g:forward(g:given(ids)))) do that(value == 0, "ids of -1 do not give zero") end
  moe.forward(g.plan, g.loaded, g.workspace, moe.ForwardArgs())
  that(not pcall(function() moe.ForwardArgs().x = {1, 2} end), "a table was taken for memory")
end

tests["FWD-03"] = function()
  local g = golden(texts("FWD-03", "fixture")[1])
  local slots, none = g.ids.count, g.y.count
  local ids, row_ids = moe.Buffer(moe.MOE_TYPE_I32, slots), moe.Buffer(moe.MOE_TYPE_I32, slots)
  local weights, rows, routed, out = nan(slots), nan(slots * g.hidden), nan(none), nan(none)
  local offsets = moe.Buffer(moe.MOE_TYPE_I64, g:n_experts() + 1)
  local function filled(args, fields)
    args.n_tokens = g.tokens
    for name, value in pairs(fields) do args[name] = value end
    return args
  end
  moe.route(g.plan, g.loaded, g.workspace, filled(moe.RouteArgs(), {x = g.x, out_ids = ids, out_weights = weights}))
  moe.dispatch(g.plan, g.workspace, filled(moe.DispatchArgs(),
    {ids = ids, out_offsets = offsets, out_row_ids = row_ids, row_capacity = slots}))
  moe.experts(g.plan, g.loaded, g.workspace, filled(moe.ExpertsArgs(),
    {x = g.x, out = rows, out_layout = moe.MOE_OUT_ROWS, n_rows = slots, offsets = offsets, row_ids = row_ids}))
  moe.combine(g.plan, g.workspace, filled(moe.CombineArgs(), {rows = rows, rows_layout = moe.MOE_IN_SORTED, n_rows = slots,
    row_ids = row_ids, ids = ids, weights = weights, out = routed}))
  moe.finish(g.plan, g.loaded, g.workspace, filled(moe.FinishArgs(),
    {routed = routed, x = g.x, ids = ids, weights = weights, out = out}))
  near(out, g.y, g.tokens, real("FWD-03", "relative_l2"))
end

local function tensor(fields)
  local made = moe.Tensor()
  for name, value in pairs(fields) do made[name] = value end
  made.data_bytes = fields.data:bytes()
  return made
end

-- Expert e has gate 1/H, up (e + 1)/H and down 1 everywhere, so that the sums are short.
tests["FWD-04"] = function()
  local fields, layer = data("FWD-04", "layer"), moe.LayerDesc()
  for name, value in fields:gmatch "([%a_]+) = (%d+)" do layer[name] = math.tointeger(tonumber(value)) end
  local h, middle, n = layer.hidden, layer.intermediate, layer.n_experts
  local function made(count, value)
    local buffer = moe.Buffer(moe.MOE_TYPE_F32, count)
    for i = 1, count do buffer:set(i, value(i - 1)) end
    return buffer
  end
  local size = middle * h
  local x = made(h, function(i) return (i + 1) / h end)
  local sum, total, result = 0, 0, 0
  for i = 1, h do sum = sum + x:get(i) end
  local mean = sum / h
  local act = mean / (1 + math.exp(-mean))
  for e = 0, n - 1 do total = total + math.exp(e * mean) end
  for e = n - layer.top_k, n - 1 do result = result + math.exp(e * mean) / total * middle * act * (e + 1) * mean end

  local f32, desc = moe.Format(), moe.PlanDesc()
  moe.format_by_name("f32", f32)
  desc.layer, desc.device, desc.x_type, desc.max_tokens = layer, moe.MOE_DEVICE_CPU, moe.MOE_TYPE_F32, 1
  for _, role in ipairs {moe.MOE_ROLE_ROUTER, moe.MOE_ROLE_GATE, moe.MOE_ROLE_UP, moe.MOE_ROLE_DOWN} do
    desc:set_format(role, f32)
  end
  local plan = moe.Plan(nil, desc)
  for _, ownership in ipairs {moe.MOE_OWN_COPY, moe.MOE_OWN_BORROW} do
    local function stack(role, experts, rows, columns, value)
      return tensor {role = role, expert = moe.MOE_ALL_EXPERTS, format = f32, n_experts = experts, rows = rows, columns = columns,
        data = made(math.max(experts, 1) * rows * columns, value)}
    end
    local tensors = moe.WeightsDesc()
    tensors.ownership = ownership
    tensors:add_tensor(stack(moe.MOE_ROLE_ROUTER, 0, n, h, function(i) return i // h / h end))
    tensors:add_tensor(stack(moe.MOE_ROLE_GATE, n, middle, h, function() return 1 / h end))
    tensors:add_tensor(stack(moe.MOE_ROLE_UP, n, middle, h, function(i) return (i // size + 1) / h end))
    tensors:add_tensor(stack(moe.MOE_ROLE_DOWN, n, h, middle, function() return 1 end))
    collectgarbage()
    local weights, report, out = moe.Weights.of_tensors(plan, tensors), moe.MemoryReport(), nan(h)
    moe.weights_memory(weights, report)
    that(report:bytes_of(moe.MOE_ROLE_GATE) == 4 * n * size, "bytes of gate")
    that((report.borrowed_bytes > 0) == (ownership == moe.MOE_OWN_BORROW), report.borrowed_bytes)
    tensors = nil
    collectgarbage()
    local args = moe.ForwardArgs()
    args.n_tokens, args.x, args.out = 1, x, out
    moe.forward(plan, weights, workspace_of(plan), args)
    near(out, made(h, function() return result end), 1, real("FWD-04", "relative_l2"))
  end
end

tests["FWD-05"] = function()
  local rows, columns, format = whole("FWD-05", "rows"), whole("FWD-05", "columns"), moe.Format()
  moe.format_by_name(texts("FWD-05", "format")[1], format)
  local matrix, again = nan(rows * columns), nan(rows * columns)
  for i = 1, matrix.count do matrix:set(i, 2 * math.random() - 1) end
  local bytes, args = moe.Buffer(moe.MOE_TYPE_U8, format:data_bytes(rows, columns)), moe.QuantizeArgs()
  args.format, args.source, args.rows, args.columns = format, matrix, rows, columns
  args.data, args.data_bytes = bytes, bytes:bytes()
  moe.quantize(args)
  moe.dequantize(tensor {role = moe.MOE_ROLE_GATE, format = format, rows = rows, columns = columns, data = bytes}, 0, again,
    again.count)
  near(again, matrix, 1, real("FWD-05", "relative_l2"))
  local desc = golden(qwen3):desc()
  desc.device, desc.device_index = moe.MOE_DEVICE_CUDA, 1000
  local good, problem = pcall(moe.Plan, nil, desc)
  that(not good, "a device that is not there was replaced")
  that(moe.build_info():find "cuda" or problem.status == moe.MOE_ERROR_NOT_BUILT, problem)
end

tests["scales"] = function()
  local rows, columns, groups, format = 130, 80, 5, moe.Format()
  moe.format_by_name("nvfp4", format)
  local size = moe.scale_layout_size(moe.MOE_SCALE_LAYOUT_TILED_128X4, rows, groups)
  that(size == 4 * 512, size)
  local linear, tiles = moe.Buffer(moe.MOE_TYPE_U8, rows * groups), moe.Buffer(moe.MOE_TYPE_U8, size)
  for i = 1, linear.count do linear:set(i, i % 120) end
  local args = moe.ConvertScalesArgs()
  args.layout, args.rows, args.columns = moe.MOE_SCALE_LAYOUT_TILED_128X4, rows, groups
  args.source, args.source_bytes, args.scales, args.scale_bytes = linear, linear:bytes(), tiles, tiles:bytes()
  moe.convert_scales(args)
  that(tiles:get(22) == linear:get(33 * groups + 2) and tiles:get(513) == linear:get(5), tiles:get(22))
  local codes, scale = moe.Buffer(moe.MOE_TYPE_U8, rows * columns // 2), moe.Buffer(moe.MOE_TYPE_F32, 1)
  for i = 1, codes.count do codes:set(i, i % 256) end
  scale:set(1, 0.5)
  local outs = {}
  for layout, scales in pairs {[moe.MOE_SCALE_LAYOUT_LINEAR] = linear, [moe.MOE_SCALE_LAYOUT_TILED_128X4] = tiles} do
    local one = tensor {role = moe.MOE_ROLE_GATE, format = format, rows = rows, columns = columns, data = codes, scales = scales,
      scale_bytes = scales:bytes(), scale_layout = layout, global_scale = scale, n_global_scales = 1}
    outs[#outs + 1] = nan(rows * columns)
    moe.dequantize(one, 0, outs[#outs], rows * columns)
  end
  that(same(outs[1], outs[2]) and outs[1]:get(columns + 2) ~= 0, "tiled scales give other values")
  args.scale_bytes = size - 1
  fails(moe.MOE_ERROR_INVALID_ARGUMENT, function() moe.convert_scales(args) end, "scale_bytes is 2047")
end

tests["tensors"] = function()
  local g, desc, count = golden(qwen3), moe.WeightsDesc(), 0
  desc.ownership = moe.MOE_OWN_BORROW
  while true do
    local good, one = pcall(g.checkpoint.tensor_of_index, g.checkpoint, g.layer, count)
    if not good then
      that(one.status == moe.MOE_ERROR_NOT_FOUND and count > 0, one)
      break
    end
    desc:add_tensor(one)
    count = count + 1
  end
  collectgarbage()
  local weights, out = moe.Weights.of_tensors(g.plan, desc), nan(g.y.count)
  moe.forward(g.plan, weights, g.workspace, g:args {out = out})
  near(out, g.y, g.tokens, 1e-5)
  local format = moe.Format()
  g.checkpoint:format_of(g.layer, moe.MOE_ROLE_GATE, format)
  that(format.type == moe.MOE_TYPE_BF16, format.type)
end

local memory_tests = dofile(root .. "/bindings/swig/lua/memory_test.lua")
memory_tests(tests, {golden = golden, qwen3 = qwen3, that = that, near = near, nan = nan, workspace_of = workspace_of})

local names, failed = {}, false
for name in pairs(tests) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(names) do
  local good, problem = xpcall(tests[name], function(problem)
    return type(problem) == "string" and debug.traceback(problem) or problem
  end)
  failed = failed or not good
  print(good and "pass " .. name or "fail " .. name .. " " .. tostring(problem))
end
os.exit(not failed, true)
