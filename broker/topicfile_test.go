package broker

import (
	"bytes"
	"testing"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/topic"
)

// FuzzTopicFile: whatever is read can be a topic, and is written as it was read.
func FuzzTopicFile(f *testing.F) {
	sound, err := encodeTopicFile(&cluster.Topic{
		Description: &topic.Description{Name: "orders", ID: topic.ID{1}, Overrides: map[string]string{"retention.ms": "5", "cleanup.policy": "compact"}, CreatedAt: 7},
		Creator:     "User:a", Growth: []cluster.Growth{{Partitions: 1, Since: 7}, {Partitions: 3, Since: 9}},
	})
	if err != nil {
		f.Fatal(err)
	}
	if s, err := decodeTopicFile(sound, topic.ID{1}); err != nil || s.Overrides["retention.ms"] != "5" || len(s.Growth) != 2 {
		f.Fatalf("%+v, %v", s, err)
	}
	f.Add(sound)
	f.Add([]byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeTopicFile(b, topic.ID{1})
		if err != nil {
			return
		}
		state, _, left := cluster.Revive(nil, "c", 1, 1, []cluster.Survivor{s})
		made, ok := state.Image().TopicByID(topic.ID{1})
		if !ok || len(left) > 0 {
			t.Fatalf("%+v became no topic: %+v", s, left)
		}
		again, err := encodeTopicFile(made)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeTopicFile(again, topic.ID{1}); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if bytes.Equal(b, sound) && !bytes.Equal(again, sound) {
			t.Fatalf("%s instead of %s", again, sound)
		}
	})
}
