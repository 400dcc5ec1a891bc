package cluster

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/weirlog/weir/topic"
)

// oldState has orders with 2 partitions and clicks with 1, and dropped, which is deleted.
func oldState(t *testing.T) *State {
	t.Helper()
	s := NewState()
	for i, op := range []Op{
		FoundCluster{ClusterID: "c"},
		RegisterNode{Node: 1},
		CreateTopic{ID: topic.ID{1}, Name: "orders", Partitions: 2, Replication: 1, Overrides: map[string]string{"retention.ms": "1000"}, Creator: "User:a", At: 5},
		CreateTopic{ID: topic.ID{2}, Name: "clicks", Partitions: 1, Replication: 1, Creator: "User:a", At: 6},
		CreateTopic{ID: topic.ID{3}, Name: "dropped", Partitions: 1, Replication: 1, Creator: "User:a", At: 7},
		DeleteTopic{ID: topic.ID{3}},
		PutEntry{Kind: "acl", Name: "x", Value: []byte("v")},
		RegisterNode{Node: 1},
	} {
		if r := s.Apply(uint64(i+1), Command{ID: CommandID{byte(i + 1)}, Op: op}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	return s
}

func mustRevive(t *testing.T, old *State, found ...Survivor) (*Image, map[topic.Name]Revived, map[topic.ID]LeftOut) {
	t.Helper()
	s, revived, left := Revive(old, "c", 1, 100, found)
	// What a node will read is what was made, and commands go on working on it.
	b := s.Snapshot().Encode()
	again, err := DecodeSnapshot(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, again.Snapshot().Encode()) || !reflect.DeepEqual(s.Image().Nodes(), again.Image().Nodes()) {
		t.Fatal("the state is another one after a snapshot")
	}
	for i, op := range []Op{
		RegisterNode{Node: 1},
		CreateTopic{ID: topic.ID{99}, Name: "later", Partitions: 1, Replication: 1, Creator: "User:a", At: 200},
		DeleteTopic{ID: topic.ID{99}},
	} {
		if r := again.Apply(again.Image().Index()+1, Command{ID: CommandID{200, byte(i)}, Op: op}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	topics, others := map[topic.Name]Revived{}, map[topic.ID]LeftOut{}
	for _, r := range revived {
		topics[r.Name] = r
	}
	for _, l := range left {
		others[l.ID] = l
	}
	return s.Image(), topics, others
}

func TestReviveFromDirectoriesAlone(t *testing.T) {
	image, topics, left := mustRevive(t, nil,
		Survivor{
			ID: topic.ID{1}, Name: "orders", Partitions: 3, Described: true, CreatedAt: 5, Creator: "User:a",
			Overrides: map[string]string{"cleanup.policy": "compact"}, Growth: []Growth{{2, 5}, {4, 50}},
		},
		Survivor{ID: topic.ID{2}, Name: "clicks", Partitions: 7},
		Survivor{ID: topic.ID{3}},
	)
	orders, _ := image.Topic("orders")
	if orders.ID != (topic.ID{1}) || len(orders.Partitions) != 4 || !orders.Settings.Compact || orders.Creator != "User:a" ||
		orders.CreatedAt != 5 || !reflect.DeepEqual(orders.Growth, []Growth{{2, 5}, {4, 50}}) || topics["orders"].Settings != FromDirectory {
		t.Errorf("orders: %+v, %+v", orders, topics["orders"])
	}
	clicks, _ := image.Topic("clicks")
	if len(clicks.Partitions) != 7 || clicks.Settings.RetentionAge >= 0 || clicks.Settings.Compact || topics["clicks"].Settings != FromNowhere {
		t.Errorf("clicks: %+v, %+v", clicks, topics["clicks"])
	}
	for _, topic := range []*Topic{orders, clicks} {
		for i, p := range topic.Partitions {
			if p.Leader != 1 || int(p.Partition) != i || len(p.Replicas) != 1 || len(p.InSync) != 1 {
				t.Errorf("%s: %+v", topic.Name, p)
			}
		}
	}
	if l := left[topic.ID{3}]; l.Why == "" || l.Doomed || image.TopicCount() != 2 || image.ClusterID() != "c" {
		t.Errorf("left out: %+v", left)
	}
}

func TestReviveOnOldMetadata(t *testing.T) {
	image, topics, left := mustRevive(t, oldState(t),
		Survivor{ID: topic.ID{1}, Name: "orders", Partitions: 3}, // grew after the metadata was written
		Survivor{ID: topic.ID{3}, Name: "dropped", Partitions: 1},
		Survivor{ID: topic.ID{4}, Name: "newer", Partitions: 1, Described: true, Growth: []Growth{{1, 9}}},
	)
	orders, _ := image.Topic("orders")
	if len(orders.Partitions) != 3 || orders.Overrides["retention.ms"] != "1000" || orders.Partitions[0].Epoch != 1 ||
		len(orders.Growth) != 2 || topics["orders"].Settings != FromMetadata || topics["orders"].Empty {
		t.Errorf("orders: %+v, %+v", orders, topics["orders"])
	}
	if !topics["clicks"].Empty || topics["newer"].Settings != FromDirectory || image.TopicCount() != 3 {
		t.Errorf("%+v", topics)
	}
	if !left[topic.ID{3}].Doomed || !image.Deleted(topic.ID{3}) {
		t.Errorf("the deleted topic: %+v", left)
	}
	if len(image.Entries("acl")) != 1 {
		t.Error("the entry is lost")
	}
}

func TestReviveWhereTwoHaveOneName(t *testing.T) {
	for name, scene := range map[string]struct {
		old    *State
		found  []Survivor
		owner  topic.ID
		loser  topic.ID
		gone   topic.ID // is no topic any more, and not remembered as deleted
		topics int
	}{
		"the one written to last": {nil, []Survivor{
			{ID: topic.ID{8}, Name: "orders", Partitions: 1, Written: 10},
			{ID: topic.ID{9}, Name: "orders", Partitions: 1, Written: 20},
		}, topic.ID{9}, topic.ID{8}, topic.ID{8}, 1},
		"also against the old metadata": {oldState(t), []Survivor{
			{ID: topic.ID{1}, Name: "orders", Partitions: 1, Written: 10},
			{ID: topic.ID{9}, Name: "orders", Partitions: 1, Written: 20},
		}, topic.ID{9}, topic.ID{1}, topic.ID{1}, 2},
		"at one time the one that the old metadata knows": {oldState(t), []Survivor{
			{ID: topic.ID{0, 1}, Name: "orders", Partitions: 1, Written: 10},
			{ID: topic.ID{1}, Name: "orders", Partitions: 1, Written: 10},
		}, topic.ID{1}, topic.ID{0, 1}, topic.ID{0, 1}, 2},
		"one without a directory gives way": {oldState(t), []Survivor{
			{ID: topic.ID{9}, Name: "orders", Partitions: 1},
		}, topic.ID{9}, topic.ID{1}, topic.ID{1}, 2},
		"a directory is whose the old metadata says": {oldState(t), []Survivor{
			{ID: topic.ID{2}, Name: "orders", Partitions: 1, Written: 20},
			{ID: topic.ID{1}, Name: "orders", Partitions: 1, Written: 10},
		}, topic.ID{1}, topic.ID{}, topic.ID{}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			image, _, left := mustRevive(t, scene.old, scene.found...)
			owner, ok := image.Topic("orders")
			if !ok || owner.ID != scene.owner || image.TopicCount() != scene.topics {
				t.Errorf("%+v of %d topics", owner, image.TopicCount())
			}
			if _, alive := image.TopicByID(scene.gone); alive || image.Deleted(scene.gone) {
				t.Error("the other one is a topic, or will be removed")
			}
			if l, told := left[scene.loser]; told != (scene.loser != topic.ID{}) || l.Doomed || told && l.Why == "" {
				t.Errorf("left out: %+v", left)
			}
		})
	}
}
