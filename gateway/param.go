package gateway

import (
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// param is a part of the path. The router leaves it as it came, so that it is unescaped once, here or in the
// generated code; and as a path is, in which a + is a +.
func param(c *fiber.Ctx, name string) (string, error) {
	text := c.Params(name)
	if strings.IndexByte(text, '%') < 0 {
		return text, nil
	}
	plain, err := url.PathUnescape(text)
	if err != nil {
		return "", fault.Newf("gateway.Route", fault.BadRequest, nil, "the path has a %% that is not followed by two hexadecimal digits")
	}
	return plain, nil
}

// topicParam is the topic that the path names.
func topicParam(c *fiber.Ctx) (topic.Name, error) {
	text, err := param(c, "topic")
	if err != nil {
		return "", err
	}
	return topic.ParseName(text)
}

// partitionParam is the partition that the path names.
func partitionParam(c *fiber.Ctx) (topic.Partition, error) {
	text, err := param(c, "partition")
	if err != nil {
		return 0, err
	}
	return parsePartition(text)
}
