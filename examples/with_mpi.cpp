// A program that has MPI already, and takes Rondo for its gradients: MPI tells rank and size, and
// carries what the ranks of Rondo must know of each other. Start it with
//
//   mpiexec -n 2 with_mpi

#include <cstdio>
#include <memory_resource>
#include <span>
#include <vector>

#include <mpi.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace {

void mean_of_ranks(int rank, int size) {
  const auto allgather = [](std::span<const std::byte> mine, std::span<std::byte> all) {
    const int bytes = static_cast<int>(mine.size());
    MPI_Allgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, MPI_COMM_WORLD);
  };
  auto world = rondo::transport::World::create(rank, size, allgather);
  std::pmr::vector<float> data(1'000'000, static_cast<float>(rank), &world.arena());

  world.communicator().allreduce(std::span(data)).wait();

  for (float& value : data) value /= static_cast<float>(size);
  std::printf("rank %d of %d: mean %g\n", rank, size, data.front());
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  mean_of_ranks(rank, size);
  MPI_Finalize();
}
