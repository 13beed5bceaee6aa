package moe

// The enums of moe.h, name by name; a test compares them with the header. All are open: a value that this list lacks is kept
// as a number and passed on.

// Type is an element type.
type Type int32

const (
	TypeNone     Type = 0
	TypeF32      Type = 1
	TypeF16      Type = 2
	TypeBF16     Type = 3
	TypeF64      Type = 4
	TypeI8       Type = 10
	TypeU8       Type = 11
	TypeI32      Type = 12
	TypeI64      Type = 13
	TypeF8E4M3   Type = 20
	TypeF8E5M2   Type = 21
	TypeF8E8M0   Type = 22
	TypeF8E4M4   Type = 23
	TypeE2M1     Type = 30
	TypeInt      Type = 31
	TypeCodebook Type = 32
	TypeGGUF     Type = 33
)

// Role is what a tensor is in its layer.
type Role int32

const (
	RoleNone                Role = 0
	RoleRouter              Role = 1
	RoleRouterBias          Role = 2
	RoleSelectionBias       Role = 3
	RoleRouterNorm          Role = 4
	RoleHashTable           Role = 5
	RoleExpertScale         Role = 6
	RoleGate                Role = 7
	RoleUp                  Role = 8
	RoleDown                Role = 9
	RoleGateUp              Role = 10
	RoleGateBias            Role = 11
	RoleUpBias              Role = 12
	RoleDownBias            Role = 13
	RoleGateUpBias          Role = 14
	RoleSharedGate          Role = 15
	RoleSharedUp            Role = 16
	RoleSharedDown          Role = 17
	RoleSharedGateUp        Role = 18
	RoleSharedExpertGate    Role = 19
	RoleLatentIn            Role = 20
	RoleLatentOut           Role = 21
	RoleLatentNorm          Role = 22
	RoleSecondSelectionBias Role = 23
	RoleLatentInNorm        Role = 24
	RoleExpertNorm          Role = 25
)

// Score is the function of the logits before selection.
type Score int32

const (
	ScoreNone         Score = 0
	ScoreSoftmax      Score = 1
	ScoreSigmoid      Score = 2
	ScoreSqrtSoftplus Score = 3
)

// Selection is how the experts of a token are chosen.
type Selection int32

const (
	SelectTopK        Selection = 0
	SelectSparsemixer Selection = 1
	SelectHash        Selection = 2
)

// GroupScore is the score of a group in group-limited selection.
type GroupScore int32

const (
	GroupScoreNone    GroupScore = 0
	GroupScoreMax     GroupScore = 1
	GroupScoreTop2Sum GroupScore = 2
)

// GroupMask is what becomes of the keys outside the best groups.
type GroupMask int32

const (
	GroupMaskInfinity GroupMask = 0
	GroupMaskZero     GroupMask = 1
)

// Renormalize is the division of the selected weights by their sum.
type Renormalize int32

const (
	RenormalizeNone     Renormalize = 0
	RenormalizeSumAdd   Renormalize = 1
	RenormalizeSumClamp Renormalize = 2
)

// WeightOn is where the routing weight is applied.
type WeightOn int32

const (
	WeightOnOutput WeightOn = 0
	WeightOnInput  WeightOn = 1
)

// CombineRule is how routed sum and shared expert become the output.
type CombineRule int32

const (
	CombineSum  CombineRule = 0
	CombineMean CombineRule = 1
)

// Activation is the activation of the experts.
type Activation int32

const (
	ActivationNone     Activation = 0
	ActivationSilu     Activation = 1
	ActivationGeluTanh Activation = 2
	ActivationGeluErf  Activation = 3
	ActivationRelu2    Activation = 4
	ActivationSitu     Activation = 5
)

// DeviceKind is a sort of device.
type DeviceKind int32

const (
	DeviceAuto DeviceKind = 0
	DeviceCPU  DeviceKind = 1
	DeviceCUDA DeviceKind = 2
)

// Space is a sort of memory.
type Space int32

const (
	SpaceHost   Space = 0
	SpacePinned Space = 1
	SpaceDevice Space = 2
)

// Stage is a stage; values are bits.
type Stage int32

const (
	StageRoute    Stage = 1
	StageDispatch Stage = 2
	StageExperts  Stage = 4
	StageCombine  Stage = 8
	StageFinish   Stage = 16
)

// LogLevel is how grave a line of the log is.
type LogLevel int32

const (
	LogDefault LogLevel = 0
	LogError   LogLevel = 1
	LogWarning LogLevel = 2
	LogInfo    LogLevel = 3
	LogDebug   LogLevel = 4
	LogOff     LogLevel = 5
)

// Packing is how the codes of a matrix lie in memory.
type Packing int32

const (
	PackingDense           Packing = 0
	PackingNibbleLowFirst  Packing = 1
	PackingNibbleHighFirst Packing = 2
	PackingBitPlanes       Packing = 3
	PackingBitStream       Packing = 4
	PackingGPTQ            Packing = 5
	PackingAWQ             Packing = 6
)

// GlobalScale is what a scale of the whole tensor does.
type GlobalScale int32

const (
	GlobalScaleNone     GlobalScale = 0
	GlobalScaleMultiply GlobalScale = 1
	GlobalScaleDivide   GlobalScale = 2
)

// ZeroPoint is how zero points are stored.
type ZeroPoint int32

const (
	ZeroPointNone           ZeroPoint = 0
	ZeroPointMiddle         ZeroPoint = 1
	ZeroPointPacked         ZeroPoint = 2
	ZeroPointPackedMinusOne ZeroPoint = 3
	ZeroPointFloat          ZeroPoint = 4
)

// Codebook is where a codebook comes from.
type Codebook int32

const (
	CodebookNone        Codebook = 0
	CodebookGiven       Codebook = 1
	CodebookNormalFloat Codebook = 2
	CodebookBNBNF4      Codebook = 3
	CodebookBNBFP4      Codebook = 4
)

// Orientation is whether memory holds a matrix or its transpose.
type Orientation int32

const (
	OrientationOutIn Orientation = 0
	OrientationInOut Orientation = 1
)

// ScaleLayout is where the scales of one byte lie.
type ScaleLayout int32

const (
	ScaleLayoutLinear     ScaleLayout = 0
	ScaleLayoutTiled128x4 ScaleLayout = 1
)

// GateUpOrder is how a fused gate_up lies along its rows.
type GateUpOrder int32

const (
	GateUpNone        GateUpOrder = 0
	GateUpGateFirst   GateUpOrder = 1
	GateUpUpFirst     GateUpOrder = 2
	GateUpInterleaved GateUpOrder = 3
)

// Residency is in which layout a plan keeps weights.
type Residency int32

const (
	ResidencyAuto   Residency = 0
	ResidencyPacked Residency = 1
	ResidencySource Residency = 2
)

// ActivationQuantization is whether activations are quantised.
type ActivationQuantization int32

const (
	ActivationQuantizationNone ActivationQuantization = 0
	ActivationQuantizationFP8  ActivationQuantization = 1
	ActivationQuantizationINT8 ActivationQuantization = 2
)

// ExplainForm is the form of an explanation.
type ExplainForm int32

const (
	ExplainText ExplainForm = 0
	ExplainJSON ExplainForm = 1
)

// Ownership is who has the bytes of weights.
type Ownership int32

const (
	OwnCopy   Ownership = 0
	OwnBorrow Ownership = 1
	OwnCaller Ownership = 2
)

// Routing is where the routing of a call comes from.
type Routing int32

const (
	RoutingCompute       Routing = 0
	RoutingLogits        Routing = 1
	RoutingIDs           Routing = 2
	RoutingIDsAndWeights Routing = 3
)

// OutLayout is what a call writes.
type OutLayout int32

const (
	OutReduced OutLayout = 0
	OutPerSlot OutLayout = 1
	OutRows    OutLayout = 2
)

// InLayout is what moe_experts reads.
type InLayout int32

const (
	InTokens  InLayout = 0
	InSorted  InLayout = 1
	InBatched InLayout = 2
)

// IO is how files are read.
type IO int32

const (
	IOMmap IO = 0
	IORead IO = 1
)

// Faults are bits of what went wrong at run time.
type Faults uint32

const (
	FaultIDOutOfRange      Faults = 1
	FaultTokenIDOutOfRange Faults = 2
	FaultTokensOutOfRange  Faults = 4
	FaultOffsetsOutOfRange Faults = 8
)

// FinishParts are bits of what Finish adds.
type FinishParts uint32

const (
	FinishAll      FinishParts = 0
	FinishDownBias FinishParts = 1
	FinishLatent   FinishParts = 2
	FinishShared   FinishParts = 4
	FinishCombine  FinishParts = 8
	FinishIdentity FinishParts = 16
)
