package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/weirlog/weir/gateway/api"
	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/topic"
)

// Topics is what the handlers of topics need of the node.
type Topics interface {
	// Topic describes a topic, or says NoTopic.
	Topic(name topic.Name) (*topic.Description, error)
	TopicByID(id topic.ID) (*topic.Description, error)
	// Topics returns up to limit topics behind a name, by name, internal ones too.
	Topics(after topic.Name, limit int) []*topic.Description
	CreateTopic(ctx context.Context, c topic.Creation) (*topic.Description, error)
	AlterTopic(ctx context.Context, name topic.Name, a topic.Alteration) (*topic.Description, error)
	DeleteTopic(ctx context.Context, name topic.Name) error
	// Offsets looks up a position in every partition.
	Offsets(ctx context.Context, name topic.Name, at topic.At) ([]topic.OffsetAt, error)
	// Bounds of a partition, without a wait.
	Bounds(ref topic.Ref) (topic.Bounds, error)
	// DeleteRecords raises the log start to an offset, NoOffset for the high watermark, and returns it.
	DeleteRecords(ctx context.Context, path topic.Path, before topic.Offset) (topic.Offset, error)
}

const (
	controlTimeout = 30 * time.Second // of a call that changes metadata or looks into logs
	controlBody    = 1 << 20          // the largest body of one
)

// mountControl mounts the handlers that are generated from the contract: those of topics and groups.
func (s *Server) mountControl(r routes) {
	api.RegisterHandlers(r, struct {
		topics
		groups
	}{topics{s}, groups{s}})
}

// topics implements the generated handlers of topics.
type topics struct{ s *Server }

// ListTopics answers GET /v1/topics.
func (t topics) ListTopics(c *fiber.Ctx, params api.ListTopicsParams) error {
	size, err := pageSize(params.PageSize)
	if err != nil {
		return err
	}
	after, err := pageAfter(params.PageToken, topic.ParseName)
	if err != nil {
		return err
	}
	internal := params.Internal != nil && *params.Internal
	list := api.TopicList{Topics: make([]api.TopicSummary, 0, min(size, 64))}
	// One more than the page, to know whether there is a next one. The node's own topics are skipped
	// here, so a page may take more than one look.
	for last := after; ; {
		found := t.s.node.Topics(last, size+1)
		for _, d := range found {
			if d.Name.Internal() && !internal {
				continue
			}
			if len(list.Topics) == size {
				token := pageToken(list.Topics[size-1].Name)
				list.NextPageToken = &token
				return answerJSON(c, http.StatusOK, list)
			}
			list.Topics = append(list.Topics, summary(d))
		}
		if len(found) <= size {
			return answerJSON(c, http.StatusOK, list)
		}
		last = found[len(found)-1].Name
	}
}

// CreateTopic answers POST /v1/topics.
func (t topics) CreateTopic(c *fiber.Ctx) error {
	var in api.TopicCreation
	if err := t.s.readJSON(c, &in); err != nil {
		return err
	}
	creation, err := readCreation(&in)
	if err != nil {
		return err
	}
	if err := writable(creation.Name, "create"); err != nil {
		return err
	}
	creation.Principal = principal(c)
	ctx, cancel := t.s.control()
	defer cancel()
	d, err := t.s.node.CreateTopic(ctx, creation)
	if err != nil {
		return err
	}
	c.Response().Header.Set(fiber.HeaderLocation, "/v1/topics/"+string(d.Name))
	return answerJSON(c, http.StatusCreated, described(d))
}

// readCreation checks what is asked for, and reports every mistake at once.
func readCreation(in *api.TopicCreation) (topic.Creation, error) {
	var out topic.Creation
	var wrong mistakes
	var err error
	if out.Name, err = topic.ParseName(in.Name); in.Name == "" {
		wrong.add(problem.Field{Name: "name", Message: "is required"})
	} else if err != nil {
		wrong.name("name", in.Name, err)
	}
	out.Partitions = wrong.atLeastOne("partitions", in.Partitions)
	out.Replication = wrong.atLeastOne("replication", in.Replication)
	if in.Settings != nil {
		out.Overrides = make(map[string]string, len(*in.Settings))
		for setting, value := range *in.Settings {
			out.Overrides[strings.Clone(setting)] = strings.Clone(string(value))
		}
		_, err := topic.ParseSettings(out.Overrides)
		wrong.add(problem.FieldsOf(err)...)
	}
	return out, wrong.err("gateway.CreateTopic")
}

// GetTopic answers GET /v1/topics/{topic}.
func (t topics) GetTopic(c *fiber.Ctx, path api.TopicPath) error {
	name, err := topic.ParseName(path)
	if err != nil {
		return err
	}
	d, err := t.s.node.Topic(name)
	if err != nil {
		return err
	}
	return answerJSON(c, http.StatusOK, described(d))
}

// AlterTopic answers PATCH /v1/topics/{topic}.
func (t topics) AlterTopic(c *fiber.Ctx, path api.TopicPath) error {
	name, err := t.ours(path, "alter")
	if err != nil {
		return err
	}
	var in api.TopicAlteration
	if err := t.s.readJSON(c, &in); err != nil {
		return err
	}
	alteration, err := readAlteration(&in)
	if err != nil {
		return err
	}
	ctx, cancel := t.s.control()
	defer cancel()
	d, err := t.s.node.AlterTopic(ctx, name, alteration)
	if err != nil {
		return err
	}
	return answerJSON(c, http.StatusOK, described(d))
}

// readAlteration checks what is asked for, and reports every mistake at once. Whether a setting that goes
// back to its default is one is the node's to say.
func readAlteration(in *api.TopicAlteration) (topic.Alteration, error) {
	var out topic.Alteration
	var wrong mistakes
	out.Partitions = wrong.atLeastOne("partitions", in.Partitions)
	if in.Settings != nil {
		out.Settings = make(map[string]*string, len(*in.Settings))
		set := make(map[string]string, len(*in.Settings))
		for setting, value := range *in.Settings {
			setting = strings.Clone(setting)
			out.Settings[setting] = nil
			if value != nil {
				text := strings.Clone(string(*value))
				out.Settings[setting], set[setting] = &text, text
			}
		}
		_, err := topic.ParseSettings(set)
		wrong.add(problem.FieldsOf(err)...)
	}
	return out, wrong.err("gateway.AlterTopic")
}

// DeleteTopic answers DELETE /v1/topics/{topic}.
func (t topics) DeleteTopic(c *fiber.Ctx, path api.TopicPath) error {
	name, err := t.ours(path, "delete")
	if err != nil {
		return err
	}
	ctx, cancel := t.s.control()
	defer cancel()
	if err := t.s.node.DeleteTopic(ctx, name); err != nil {
		return err
	}
	c.Response().SetStatusCode(http.StatusNoContent)
	return nil
}

// ListPartitions answers GET /v1/topics/{topic}/partitions.
func (t topics) ListPartitions(c *fiber.Ctx, path api.TopicPath, params api.ListPartitionsParams) error {
	name, err := topic.ParseName(path)
	if err != nil {
		return err
	}
	size, err := pageSize(params.PageSize)
	if err != nil {
		return err
	}
	first, err := pagePartition(params.PageToken)
	if err != nil {
		return err
	}
	d, err := t.s.node.Topic(name)
	if err != nil {
		return err
	}
	list := api.PartitionList{Topic: string(d.Name), Partitions: []api.Partition{}}
	end := min(first+size, len(d.Partitions))
	for i := first; i < end; i++ {
		p := d.Partitions[i]
		out := api.Partition{
			Partition: int32(p.Partition), Leader: int32(p.Leader), LeaderEpoch: int32(p.Epoch),
			Replicas: nodes(p.Replicas), InSync: nodes(p.InSync),
		}
		if b, err := t.s.node.Bounds(topic.Ref{ID: d.ID, Partition: p.Partition}); err == nil {
			out.LogStartOffset, out.HighWatermark = new64(b.LogStart), new64(b.HighWatermark)
		}
		list.Partitions = append(list.Partitions, out)
	}
	if end < len(d.Partitions) {
		token := pageToken(strconv.Itoa(end))
		list.NextPageToken = &token
	}
	return answerJSON(c, http.StatusOK, list)
}

// ListOffsets answers GET /v1/topics/{topic}/offsets.
func (t topics) ListOffsets(c *fiber.Ctx, path api.TopicPath, params api.ListOffsetsParams) error {
	name, err := topic.ParseName(path)
	if err != nil {
		return err
	}
	at, err := parseAt(params.At)
	if err != nil {
		return err
	}
	ctx, cancel := t.s.control()
	defer cancel()
	found, err := t.s.node.Offsets(ctx, name, at)
	if err != nil {
		return err
	}
	var list api.OffsetList
	list.Topic = string(name)
	list.Partitions = make([]struct {
		HighWatermark  int64  `json:"high_watermark"`
		LogStartOffset int64  `json:"log_start_offset"`
		Offset         int64  `json:"offset"`
		Partition      int32  `json:"partition"`
		Timestamp      *int64 `json:"timestamp,omitempty"`
	}, len(found))
	for i, o := range found {
		out := &list.Partitions[i]
		out.Partition, out.Offset = int32(o.Partition), int64(o.Offset)
		out.LogStartOffset, out.HighWatermark = int64(o.Bounds.LogStart), int64(o.Bounds.HighWatermark)
		if at.Kind == topic.AtTime && o.Timestamp != topic.NoTimestamp {
			out.Timestamp = new64(o.Timestamp)
		}
	}
	return answerJSON(c, http.StatusOK, list)
}

// DeleteRecords answers POST /v1/topics/{topic}/delete-records. As with produce, the status tells whether
// all, some or none of it was done.
func (t topics) DeleteRecords(c *fiber.Ctx, path api.TopicPath) error {
	name, err := t.ours(path, "delete records of")
	if err != nil {
		return err
	}
	var in api.RecordsDeletion
	if err := t.s.readJSON(c, &in); err != nil {
		return err
	}
	if err := checkDeletion(in); err != nil {
		return err
	}
	if _, err := t.s.node.Topic(name); err != nil {
		return err
	}
	ctx, cancel := t.s.control()
	defer cancel()
	var out api.RecordsDeleted
	out.Topic = string(name)
	out.Partitions = make([]struct {
		Error          *json.RawMessage `json:"error,omitempty"`
		LogStartOffset *int64           `json:"log_start_offset,omitempty"`
		Partition      int32            `json:"partition"`
		Status         int              `json:"status"`
	}, len(in.Partitions))
	var failed int
	var first error
	for i, p := range in.Partitions {
		done := &out.Partitions[i]
		done.Partition, done.Status = *p.Partition, http.StatusOK
		start, err := t.s.node.DeleteRecords(ctx, topic.Path{Topic: name, Partition: topic.Partition(*p.Partition)}, topic.Offset(*p.BeforeOffset))
		if err == nil {
			done.LogStartOffset = new64(start)
			continue
		}
		failed++
		if first == nil {
			first = err
		}
		pr := problem.Of(err)
		t.s.logProblem(c.Context(), &pr, err)
		raw := json.RawMessage(pr.AppendShort(nil))
		done.Error, done.Status = &raw, pr.Status
	}
	switch failed {
	case 0:
		return answerJSON(c, http.StatusOK, out)
	case len(in.Partitions):
		return first
	default:
		return answerJSON(c, http.StatusMultiStatus, out)
	}
}

func checkDeletion(in api.RecordsDeletion) error {
	if len(in.Partitions) == 0 || len(in.Partitions) > mostPageSize {
		return problem.FieldError("gateway.DeleteRecords", "partitions", "must have 1 to %d entries", mostPageSize)
	}
	var wrong mistakes
	for i, p := range in.Partitions {
		at := "partitions[" + strconv.Itoa(i) + "]."
		switch {
		case p.Partition == nil:
			wrong.add(problem.Field{Name: at + "partition", Message: "is required"})
		case *p.Partition < 0:
			wrong.add(problem.Field{Name: at + "partition", Message: "must be at least 0"})
		}
		switch {
		case p.BeforeOffset == nil:
			wrong.add(problem.Field{Name: at + "before_offset", Message: "is required"})
		case *p.BeforeOffset < -1:
			wrong.add(problem.Field{Name: at + "before_offset", Message: "must be at least 0, or -1 for all that can be read"})
		}
	}
	return wrong.err("gateway.DeleteRecords")
}

// ours reads the name of a topic that is about to be changed: the node's own topics are not changed from here.
func (t topics) ours(s, action string) (topic.Name, error) {
	name, err := topic.ParseName(s)
	if err != nil {
		return "", err
	}
	return name, writable(name, action)
}

func writable(name topic.Name, action string) error {
	if name.Internal() {
		return forbidden(action, "topic:"+string(name), "the topic "+quote(string(name))+" is the node's own; nobody else may "+action+" it")
	}
	return nil
}

// control is the context of a call that changes metadata.
func (s *Server) control() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.works, controlTimeout)
}

func summary(d *topic.Description) api.TopicSummary {
	out := api.TopicSummary{
		Name: string(d.Name), Id: d.ID.String(), Partitions: int32(len(d.Partitions)), Replication: int32(d.Replication),
		Settings: d.Overrides, CreatedAt: int64(d.CreatedAt),
	}
	if out.Settings == nil {
		out.Settings = map[string]string{}
	}
	if d.Name.Internal() {
		yes := true
		out.Internal = &yes
	}
	return out
}

func described(d *topic.Description) api.Topic {
	short := summary(d)
	out := api.Topic{
		Name: short.Name, Id: short.Id, Partitions: short.Partitions, Replication: short.Replication,
		Settings: short.Settings, CreatedAt: short.CreatedAt, Internal: short.Internal,
		EffectiveSettings: map[string]string{},
	}
	for _, doc := range topic.SettingDocs() {
		out.EffectiveSettings[doc.Name] = doc.Default
		if value, set := d.Overrides[doc.Name]; set {
			out.EffectiveSettings[doc.Name] = value
		}
	}
	return out
}

func nodes(ids []topic.NodeID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

func new64[T ~int64](v T) *int64 {
	n := int64(v)
	return &n
}

// parseAt reads "earliest", "latest" or a time, with "ts:" before it or not; missing is latest.
func parseAt(s *string) (topic.At, error) {
	if s == nil || *s == "latest" {
		return topic.At{Kind: topic.AtLatest}, nil
	}
	if *s == "earliest" {
		return topic.At{Kind: topic.AtEarliest}, nil
	}
	time, err := topic.ParseMillis(strings.TrimPrefix(*s, "ts:"))
	if err != nil {
		return topic.At{}, problem.FieldError("gateway.Offsets", "at", "must be earliest, latest, or a time: milliseconds since 1970 or RFC 3339, such as 2025-11-02T10:00:00Z")
	}
	return topic.At{Kind: topic.AtTime, Time: time}, nil
}
