// The operations of a rank in the flight recorder, and who writes them to a file when.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <latch>
#include <memory_resource>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/flight_record.hpp>

#include "support/processes.hpp"
#include "support/scratch_folder.hpp"
#include "support/world.hpp"

namespace rondo::transport::flight_record_test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::ScratchFolder;
using testing::HasSubstr;
using testing::SizeIs;

json read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return json::parse(file);
}

// The record that `world` has made so far.
json record_of(const World& world) {
  const ScratchFolder folder;
  world.dump_flight_record(folder.path() / "record.json");
  return read(folder.path() / "record.json");
}

// The operations of the World's own communicator.
json operations_of(const World& world) {
  return record_of(world)["communicators"][0]["operations"];
}

WorldOptions options_with(const ScratchFolder& folder) {
  WorldOptions options = test::quick_options();
  options.dump_folder = folder.path();
  return options;
}

std::filesystem::path file_of(const ScratchFolder& folder, int rank) {
  return FlightRecord::path_in(folder.path(), rank);
}

std::vector<std::string> names_in(const ScratchFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.push_back(entry.path().filename());
  }
  return names;
}

TEST(FlightRecordTest, TellsWhoseItIs) {
  test::World(3).run([](World& world) {
    const json record = record_of(world);

    EXPECT_EQ(record["format"], "rondo-flight-record-1");
    EXPECT_EQ(record["rank"], world.rank());
    EXPECT_EQ(record["size"], 3);
    EXPECT_EQ(record["pid"], ::getpid());
    EXPECT_EQ(record["host"], world.ranks()[0].host);
    EXPECT_EQ(record["reason"], "asked for");
    EXPECT_TRUE(record["failure"].is_null());
  });
}

TEST(FlightRecordTest, RemembersWhatACollectiveWas) {
  test::World(2).run([](World& world) {
    std::vector<float> data(1000);
    std::vector<std::int32_t> word(1);
    world.communicator().allreduce(std::span(data), ReduceOp::max).wait();
    world.communicator().broadcast(std::span(word), 1).wait();
    world.communicator().barrier().wait();

    const json operations = operations_of(world);

    ASSERT_THAT(operations, SizeIs(3));
    EXPECT_EQ(operations[0]["operation"], "allreduce");
    EXPECT_EQ(operations[0]["number"], 1);
    EXPECT_EQ(operations[0]["type"], "f32");
    EXPECT_EQ(operations[0]["reduction"], "max");
    EXPECT_EQ(operations[0]["count"], 1000);
    EXPECT_EQ(operations[0]["bytes"], 4000);
    EXPECT_FALSE(operations[0].contains("root"));
    EXPECT_EQ(operations[1]["operation"], "broadcast");
    EXPECT_EQ(operations[1]["root"], 1);
    EXPECT_FALSE(operations[1].contains("reduction"));
    EXPECT_EQ(operations[2]["operation"], "barrier");
    EXPECT_EQ(operations[2]["number"], 3);
    EXPECT_EQ(operations[2]["index"], 3);
  });
}

TEST(FlightRecordTest, OrdersTheTimesOfACompleteOperation) {
  test::World(2).run([](World& world) {
    std::vector<float> data(100'000);  // not small: it starts when all have come
    for (int i = 0; i < 3; ++i) world.communicator().allreduce(std::span(data)).wait();

    const json record = record_of(world);

    double before = 0;
    for (const json& operation : record["communicators"][0]["operations"]) {
      EXPECT_EQ(operation["state"], "complete");
      EXPECT_LE(before, operation["posted_us"]);
      EXPECT_LE(operation["posted_us"], operation["started_us"]);
      EXPECT_LE(operation["started_us"], operation["ended_us"]);
      before = operation["ended_us"];
    }
    EXPECT_LE(before, record["dumped_us"]);
    EXPECT_GT(record["began_unix_us"], std::int64_t{1'700'000'000'000'000});
  });
}

// The bytes of all ranks count: rank 0 has none of its own, and copies those of the other.
TEST(FlightRecordTest, TimesTheStartOfWhatIsMoreThanAFewKiB) {
  test::World(2).run([](World& world) {
    std::pmr::vector<float> few(2048, 1.0F, &world.arena());
    std::pmr::vector<float> many(100'000, 1.0F, &world.arena());
    const std::array<std::size_t, 2> counts{0, many.size()};
    const auto own = std::span(many).first(counts[static_cast<std::size_t>(world.rank())]);
    world.communicator().allreduce(std::span(few)).wait();
    world.communicator().allgather(own, std::span(many), counts).wait();

    const json operations = record_of(world)["communicators"][0]["operations"];

    EXPECT_TRUE(operations[0]["started_us"].is_null());
    EXPECT_LE(operations[0]["posted_us"], operations[0]["ended_us"]);
    EXPECT_LE(operations[1]["posted_us"], operations[1]["started_us"]);
    EXPECT_LE(operations[1]["started_us"], operations[1]["ended_us"]);
  });
}

TEST(FlightRecordTest, TimesTheEndOfASmallOperationThatWaited) {
  std::latch waited(1);
  test::World(2).run([&waited](World& world) {
    Communicator other = world.communicator().split(0);
    if (world.rank() == 1) {
      waited.wait();
      return other.barrier().wait();
    }
    Request barrier = other.barrier();
    EXPECT_FALSE(barrier.wait_for(1ms));
    waited.count_down();
    while (!barrier.wait_for(1ms)) {
    }

    const json operation = record_of(world)["communicators"][1]["operations"][0];

    EXPECT_LE(operation["posted_us"], operation["ended_us"]);
  });
}

TEST(FlightRecordTest, ShowsAnOperationThatWaitsForPeers) {
  test::World(2).run([](World& world) {
    Communicator group = world.communicator().split(0);
    if (world.rank() == 0) {
      Request request = group.barrier();

      const json operation = record_of(world)["communicators"][1]["operations"][0];

      EXPECT_EQ(operation["state"], "published");
      EXPECT_TRUE(operation["started_us"].is_null());
      EXPECT_TRUE(operation["ended_us"].is_null());
      world.communicator().barrier().wait();
      request.wait();
    } else {
      world.communicator().barrier().wait();
      group.barrier().wait();
    }
  });
}

TEST(FlightRecordTest, KeepsTheLast1024Operations) {
  test::World(1).run([](World& world) {
    for (int i = 0; i < 1500; ++i) world.communicator().barrier().wait();

    const json communicator = record_of(world)["communicators"][0];

    EXPECT_EQ(communicator["posted"], 1500);
    ASSERT_THAT(communicator["operations"], SizeIs(1024));
    EXPECT_EQ(communicator["operations"].front()["index"], 1500 - 1024 + 1);
    EXPECT_EQ(communicator["operations"].back()["number"], 1500);
  });
}

TEST(FlightRecordTest, RemembersPointToPointOperations) {
  test::World(2).run([](World& world) {
    Communicator& comm = world.communicator();
    std::vector<double> data(10);
    if (world.rank() == 0) {
      comm.send(std::span<const double>(data), 1, 7).wait();
    } else {
      comm.recv(std::span(data), 0, 7).wait();
    }
    std::uint64_t value = 0;
    if (world.rank() == 0) comm.put_signal(1, 42, 3).wait();
    if (world.rank() == 1) comm.wait_signal(0, value, 3).wait();

    const json operations = operations_of(world);

    ASSERT_THAT(operations, SizeIs(2));
    EXPECT_EQ(operations[0]["operation"], world.rank() == 0 ? "send" : "recv");
    EXPECT_EQ(operations[0]["peer"], 1 - world.rank());
    EXPECT_EQ(operations[0]["tag"], 7);
    EXPECT_EQ(operations[0]["type"], "f64");
    EXPECT_EQ(operations[0]["count"], 10);
    EXPECT_EQ(operations[0]["bytes"], 80);
    EXPECT_EQ(operations[0]["state"], "complete");
    EXPECT_EQ(operations[1]["operation"], world.rank() == 0 ? "put_signal" : "wait_signal");
    EXPECT_EQ(operations[1]["tag"], 3);
  });
}

TEST(FlightRecordTest, HasALogForEachCommunicator) {
  test::World(4).run([](World& world) {
    Communicator odd_or_even = world.communicator().split(world.rank() % 2);
    odd_or_even.barrier().wait();

    const json communicators = record_of(world)["communicators"];

    ASSERT_THAT(communicators, SizeIs(2));
    EXPECT_EQ(communicators[0]["members"], json({0, 1, 2, 3}));
    EXPECT_EQ(communicators[1]["members"], world.rank() % 2 == 0 ? json({0, 2}) : json({1, 3}));
    EXPECT_EQ(communicators[1]["rank"], world.rank() / 2);
    EXPECT_EQ(communicators[1]["state"], "open");
    EXPECT_THAT(communicators[1]["operations"], SizeIs(1));
  });
}

TEST(FlightRecordTest, UsesLogsOfDestroyedCommunicatorsAgain) {
  test::World(2).run([](World& world) {
    for (int i = 0; i < 5; ++i) {
      Communicator group = world.communicator().split(0);
      for (int k = 0; k < i; ++k) group.barrier().wait();
    }

    const json communicators = record_of(world)["communicators"];

    ASSERT_THAT(communicators, SizeIs(2));
    EXPECT_EQ(communicators[1]["state"], "closed");
    EXPECT_EQ(communicators[1]["posted"], 4);
    EXPECT_EQ(communicators[1]["operations"].back()["number"], 4);
  });
}

// A communicator that spans nodes is made of more communicators than its user knows.
TEST(FlightRecordTest, ShowsACommunicatorThatSpansNodesAsOne) {
  test::World(test::Backend::hierarchy, 4).run([](World& world) {
    std::vector<float> data(50'000, 1.0F);
    world.communicator().allreduce(std::span(data)).wait();

    const json communicators = record_of(world)["communicators"];

    ASSERT_THAT(communicators, SizeIs(1));
    ASSERT_THAT(communicators[0]["operations"], SizeIs(1));
    EXPECT_EQ(communicators[0]["operations"][0]["state"], "complete");
  });
}

TEST(FlightRecordTest, IsWrittenWhenADeadlinePasses) {
  const ScratchFolder folder;
  WorldOptions options = options_with(folder);
  options.deadline = 500ms;
  test::World(2, options).run([&](World& world) {
    Communicator group = world.communicator().split(0);
    if (world.rank() == 0) {
      Request request = group.barrier();
      EXPECT_THROW(request.wait(), Error);
      const json record = read(file_of(folder, 0));
      EXPECT_EQ(record["reason"], "deadline exceeded");
      EXPECT_THAT(record["failure"]["text"].get<std::string>(), HasSubstr("its deadline"));
      EXPECT_EQ(record["communicators"][1]["operations"].back()["state"], "failed");
      // Nobody knows why rank 1 did not come: its record may tell.
      EXPECT_EQ(read(file_of(folder, 1))["rank"], 1);
    }
    EXPECT_TRUE(world.communicator().barrier().wait_for(60s));
  });
}

TEST(FlightRecordTest, IsWrittenForARankThatHasLeft) {
  const ScratchFolder folder;
  test::World(3, options_with(folder)).run_without(2, [&](World& world) {
    EXPECT_THROW(world.communicator().barrier().wait(), Error);
  });

  for (const int rank : {0, 1}) {
    EXPECT_EQ(read(file_of(folder, rank))["failure"]["kind"], "peer lost");
  }
  const json lost = read(file_of(folder, 2));
  EXPECT_EQ(lost["rank"], 2);
  EXPECT_TRUE(lost["failure"].is_null());
  EXPECT_THAT(lost["reason"].get<std::string>(), HasSubstr("it is gone, says rank "));
  EXPECT_THAT(names_in(folder), SizeIs(3)) << "nothing is left of what was written aside";
}

TEST(FlightRecordTest, IsWrittenOnAMismatch) {
  const ScratchFolder folder;
  test::World(2, options_with(folder)).run([](World& world) {
    std::vector<float> data(world.rank() == 0 ? 1 : 2);
    Request request = world.communicator().allreduce(std::span(data));
    EXPECT_THROW(request.wait(), Error);
  });

  const json first = read(file_of(folder, 0));
  const json second = read(file_of(folder, 1));
  EXPECT_EQ(first["communicators"][0]["operations"][0]["count"], 1);
  EXPECT_EQ(second["communicators"][0]["operations"][0]["count"], 2);
}

TEST(FlightRecordTest, IsWrittenByWhoeverAbortsAndByAllOthers) {
  const ScratchFolder folder;
  test::World(2, options_with(folder)).run([](World& world) {
    if (world.rank() == 1) {
      world.abort("the disk is \"full\"\n");
      return;
    }
    EXPECT_THROW(world.communicator().barrier().wait(), Error);
  });

  for (const int rank : {0, 1}) {
    const json record = read(file_of(folder, rank));
    EXPECT_EQ(record["failure"]["kind"], "aborted");
    EXPECT_THAT(record["failure"]["text"].get<std::string>(), HasSubstr("the disk is \"full\"\n"));
  }
}

TEST(FlightRecordTest, AFolderThatCannotBeMadeDoesNotHideTheFailure) {
  const ScratchFolder folder;
  const auto file = folder.write("file", "in the way");
  WorldOptions options = test::quick_options();
  options.dump_folder = file / "below";
  test::World(2, options).run_without(1, [&](World& world) {
    Request request = world.communicator().barrier();
    EXPECT_THROW(request.wait(), Error);
    EXPECT_EQ(request.status(), Errc::peer_lost);
    EXPECT_THROW(world.dump_flight_record(file / "record.json"), std::system_error);
  });
}

TEST(FlightRecordTest, ReplacesNoPipe) {
  const ScratchFolder folder;
  const std::filesystem::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  test::World(1).run(
      [&](World& world) { EXPECT_THROW(world.dump_flight_record(pipe), std::system_error); });
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(FlightRecordTest, IsWrittenBySurvivorsOfAKilledProcess) {
  const ScratchFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  test::Processes processes(3, options_with(folder), [&](World& world) {
    std::vector<float> data(1000);
    for (int i = 0; i < 5; ++i) world.communicator().allreduce(std::span(data)).wait();
    if (world.rank() == 1) {
      (void)!::write(ready[1], "x", 1);
      while (true) ::pause();
    }
    try {
      world.communicator().barrier().wait();
    } catch (const Error& error) {
      ::_exit(error.code() == Errc::peer_lost ? 0 : 9);
    }
    ::_exit(8);
  });
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);

  processes.signal(1, SIGKILL);
  EXPECT_EQ(processes.wait(0), 0);
  EXPECT_EQ(processes.wait(2), 0);
  EXPECT_EQ(processes.wait(1), 128 + SIGKILL);

  const json dead = read(file_of(folder, 1));
  EXPECT_EQ(dead["rank"], 1);
  EXPECT_TRUE(dead["failure"].is_null());
  ASSERT_THAT(dead["communicators"][0]["operations"], SizeIs(5));
  EXPECT_EQ(dead["communicators"][0]["operations"].back()["state"], "complete");
  const json survivor = read(file_of(folder, 0));
  EXPECT_EQ(survivor["communicators"][0]["operations"].back()["operation"], "barrier");
  ::close(ready[0]);
  ::close(ready[1]);
}

// As a launcher does it; the rank is this process.
class InheritedRecordTest : public testing::Test {
 protected:
  static void run_rank(int descriptor) {
    ::setenv("RONDO_COORDINATOR", ("local:" + test::new_job()).c_str(), 1);
    ::setenv("RONDO_RANK", "0", 1);
    ::setenv("RONDO_SIZE", "1", 1);
    ::setenv("RONDO_RECORDER", std::to_string(descriptor).c_str(), 1);
    {
      World world = World::attach(test::quick_options());
      for (int i = 0; i < 3; ++i) world.communicator().barrier().wait();
    }
    for (const char* name : {"RONDO_COORDINATOR", "RONDO_RANK", "RONDO_SIZE", "RONDO_RECORDER"}) {
      ::unsetenv(name);
    }
  }
};

TEST_F(InheritedRecordTest, OutlivesTheRank) {
  const FlightRecord record = FlightRecord::create();
  EXPECT_EQ(record.json("too early"), "");
  EXPECT_FALSE(record.tells_of_failure());

  run_rank(record.descriptor());

  EXPECT_FALSE(record.tells_of_failure());
  const json read = json::parse(record.json("it was killed"));
  EXPECT_EQ(read["reason"], "it was killed");
  EXPECT_EQ(read["communicators"][0]["state"], "closed");
  EXPECT_THAT(read["communicators"][0]["operations"], SizeIs(3));
}

TEST_F(InheritedRecordTest, BeginsAnewWithTheNextWorld) {
  const FlightRecord record = FlightRecord::create();

  run_rank(record.descriptor());
  run_rank(record.descriptor());

  EXPECT_THAT(json::parse(record.json(""))["communicators"], SizeIs(1));
}

TEST_F(InheritedRecordTest, IsNotTakenForAnotherFile) {
  const ScratchFolder folder;
  const auto path = folder.write("file", "precious");
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);

  run_rank(file);

  EXPECT_EQ(std::filesystem::file_size(path), 8U);
  ::close(file);
}

TEST_F(InheritedRecordTest, IsNotWrittenWhenNobodyRecorded) {
  const ScratchFolder folder;
  const FlightRecord record = FlightRecord::create();

  EXPECT_FALSE(record.write(file_of(folder, 0), "nothing there"));

  EXPECT_FALSE(std::filesystem::exists(file_of(folder, 0)));
}

// A case for the thread sanitizer: one thread names the folder while another one ends the job.
TEST(FlightRecordTest, IsWrittenWholeWhenAnotherThreadAbortsWhileTheFolderIsBeingSet) {
  const ScratchFolder folders;
  const std::filesystem::path one = folders.path() / "the-first-of-two-folders";
  const std::filesystem::path other = folders.path() / "another-one-whose-name-is-far-longer";
  test::World(1).run([&](World& world) {
    world.set_dump_folder(one);
    std::atomic<bool> ended{false};
    std::thread aborter([&] {
      world.abort("enough");
      ended = true;
    });
    for (bool last = false; !last;) {
      last = ended;
      world.set_dump_folder(other);
      world.set_dump_folder(one);
    }
    aborter.join();
  });

  EXPECT_NE(std::filesystem::exists(FlightRecord::path_in(one, 0)),
            std::filesystem::exists(FlightRecord::path_in(other, 0)));
}

}  // namespace
}  // namespace rondo::transport::flight_record_test
