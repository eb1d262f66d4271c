// The conformance steps by grpc-go: conformance ADDRESS STEPS DESCRIPTORS. One line a step; exit
// code 1 on a fault. Messages are dynamic, so no code needs to be generated.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

const (
	service  = "scheduler.v1.SchedulerService"
	patience = 5 * time.Second
	deadline = 20 * time.Second
)

var (
	saved    = map[string]string{}
	variable = regexp.MustCompile(`\$\{(\w+)\}`)
)

type step struct {
	Step     string
	Call     string
	Request  json.RawMessage
	Metadata map[string]string
	Retry    bool
	Answer   interface{}
	Messages []interface{}
	Error    interface{}
	Trailer  map[string]interface{}
	Save     map[string]string
}

// codec encodes dynamic messages, which the codec of this grpc-go does not know.
type codec struct{}

func (codec) Marshal(v interface{}) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }
func (codec) Unmarshal(data []byte, v interface{}) error {
	return proto.Unmarshal(data, v.(proto.Message))
}
func (codec) Name() string { return "proto" }

func main() {
	methods, err := loaded(os.Args[3])
	check(err)
	text, err := os.ReadFile(os.Args[2])
	check(err)
	var steps []step
	check(json.Unmarshal(text, &steps))
	conn, err := grpc.Dial(os.Args[1], grpc.WithInsecure(), grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{})))
	check(err)
	defer conn.Close()
	faults := 0
	for _, each := range steps {
		method := methods.ByName(protoreflect.Name(each.Call))
		until := time.Now().Add(patience)
		fault := attempt(conn, method, each)
		for fault != "" && each.Retry && time.Now().Before(until) {
			time.Sleep(100 * time.Millisecond)
			fault = attempt(conn, method, each)
		}
		if fault != "" {
			faults++
			fmt.Printf("FAIL  %s: %s\n", each.Step, fault)
		} else {
			fmt.Printf("ok    %s\n", each.Step)
		}
	}
	if faults > 0 {
		os.Exit(1)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func loaded(path string) (protoreflect.MethodDescriptors, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(data, set); err != nil {
		return nil, err
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, err
	}
	found, err := files.FindDescriptorByName(service)
	if err != nil {
		return nil, err
	}
	return found.(protoreflect.ServiceDescriptor).Methods(), nil
}

// attempt returns what is wrong, "" for nothing.
func attempt(conn *grpc.ClientConn, method protoreflect.MethodDescriptor, each step) string {
	request := dynamicpb.NewMessage(method.Input())
	if err := protojson.Unmarshal([]byte(filled(string(each.Request))), request); err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(context.Background(), metadata.New(each.Metadata)), deadline)
	defer cancel()
	path := "/" + service + "/" + each.Call
	var found interface{}
	var trailer metadata.MD
	var err error
	var wanted = each.Answer
	if each.Messages != nil {
		wanted = []interface{}(each.Messages)
		found, err = streamed(ctx, conn, path, method, request, len(each.Messages))
	} else {
		answer := dynamicpb.NewMessage(method.Output())
		err = conn.Invoke(ctx, path, request, answer, grpc.Trailer(&trailer))
		found = shown(answer)
	}
	if err != nil {
		refused := refusal(err)
		if each.Error == nil {
			return fmt.Sprintf("was refused: %v", refused)
		}
		return differs(each.Error, refused, "")
	}
	if each.Error != nil {
		return fmt.Sprintf("was not refused, but answered %v", found)
	}
	fault := differs(wanted, found, "")
	for key, value := range each.Trailer {
		if fault == "" {
			fault = differs(value, strings.Join(trailer.Get(key), ","), "."+key)
		}
	}
	for key, field := range each.Save {
		saved[key] = fmt.Sprint(found.(map[string]interface{})[field])
	}
	return fault
}

func streamed(ctx context.Context, conn *grpc.ClientConn, path string, method protoreflect.MethodDescriptor, request proto.Message, count int) (interface{}, error) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(request); err != nil {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	found := []interface{}{}
	for len(found) < count {
		message := dynamicpb.NewMessage(method.Output())
		if err := stream.RecvMsg(message); err != nil {
			return nil, err
		}
		found = append(found, shown(message))
	}
	return found, nil
}

func shown(message proto.Message) interface{} {
	text, err := protojson.Marshal(message)
	check(err)
	var found interface{}
	check(json.Unmarshal(text, &found))
	return found
}

func refusal(err error) interface{} {
	of := status.Convert(err)
	code := []byte{}
	for at, letter := range of.Code().String() { // InvalidArgument -> INVALID_ARGUMENT
		if at > 0 && letter >= 'A' && letter <= 'Z' {
			code = append(code, '_')
		}
		code = append(code, string(letter)...)
	}
	found := map[string]interface{}{"code": strings.ToUpper(string(code)), "message": of.Message()}
	for _, detail := range of.Details() {
		switch info := detail.(type) {
		case *errdetails.ErrorInfo:
			found["reason"] = info.Reason
		case *errdetails.BadRequest:
			fields := []interface{}{}
			for _, violation := range info.FieldViolations {
				fields = append(fields, violation.Field)
			}
			found["fields"] = fields
		}
	}
	return found
}

func filled(text string) string {
	return variable.ReplaceAllStringFunc(text, func(name string) string { return saved[name[2:len(name)-1]] })
}

// differs says how found differs from what is wanted of it: objects may have more, "*" is anything.
func differs(wanted, found interface{}, path string) string {
	switch want := wanted.(type) {
	case map[string]interface{}:
		has, ok := found.(map[string]interface{})
		if !ok {
			return fmt.Sprintf("%s is %v", path, found)
		}
		for key, each := range want {
			if fault := differs(each, has[key], path+"."+key); fault != "" {
				return fault
			}
		}
		return ""
	case []interface{}:
		has, ok := found.([]interface{})
		if !ok || len(has) != len(want) {
			return fmt.Sprintf("%s is %v", path, found)
		}
		for at := range want {
			if fault := differs(want[at], has[at], fmt.Sprintf("%s[%d]", path, at)); fault != "" {
				return fault
			}
		}
		return ""
	case string:
		if want == "*" {
			if found == nil || found == "" {
				return path + " is missing"
			}
			return ""
		}
		wanted = filled(want)
	}
	if !reflect.DeepEqual(wanted, found) {
		return fmt.Sprintf("%s is %v, not %v", path, found, wanted)
	}
	return ""
}
